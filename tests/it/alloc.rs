//! A counting allocator for the whole test binary: how much the calling thread holds at its peak.
//!
//! Counters are a thread's own, because the harness runs tests side by side. What a function hands to another thread, or
//! what a driver takes from the system's allocator, is not counted.
#![allow(unsafe_code)] // A global allocator cannot be written without; only tests have one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Const and without a destructor, so that the allocator itself may touch them at any time in a thread's life.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    let held = HELD.get().wrapping_add(bytes);
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call goes to `System` unchanged, which holds GlobalAlloc's contract; beside it only thread-local numbers
// change, and counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: `at` came from `System` through this allocator with this layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old block may live until the new one is filled: both count for a moment.
        count(size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as in `dealloc`, and the caller promises that `size` is not zero and fits the alignment.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `work` and returns its result and the bytes that this thread held at the peak, above what it held before.
pub(crate) fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let out = work();
    (out, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

#[test]
fn peak_counts_what_was_held_at_once() {
    let ((), one) = peak_bytes(|| {
        for _ in 0..4 {
            drop(std::hint::black_box(vec![1u8; 1 << 20]));
        }
    });
    assert!(((1 << 20)..(1 << 20) + 4096).contains(&one), "{one}");
    let (kept, two) = peak_bytes(|| std::hint::black_box((vec![0u8; 1 << 20], vec![1u8; 1 << 20])));
    assert!(two >= 2 << 20, "{two}");
    drop(kept);
}
