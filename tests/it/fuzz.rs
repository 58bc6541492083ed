//! The fuzz targets for a few seconds each, from a fixed seed, and every input that they once failed on.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::path::Path;

use crate::pairwise::Random;

const ROUNDS: usize = 4000;

/// A few edits of the kinds that readers trip over.
fn mutated(random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let to = (at + 1 + random.below(12)).min(bytes.len());
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..to)),
            4 => {
                let part = bytes[at..to].to_vec();
                bytes.splice(at..at, part);
            }
            5 => {
                let numbers: [&[u8]; 8] = [
                    b"-1",
                    b"1e999",
                    b"18446744073709551615",
                    b"null",
                    b"[]",
                    b"\xff\xff\xff\xff",
                    b"\0\0\0\0\0\0\0\x80",
                    b"\"",
                ];
                bytes.splice(at..to, numbers[random.below(numbers.len())].iter().copied());
            }
            6 => {
                let from = random.below(other.len() + 1);
                bytes.splice(at..to, other[from..].iter().copied().take(40));
            }
            _ if to - at == 12 || to > at => bytes[at..to].reverse(),
            _ => {}
        }
    }
    bytes
}

#[test]
fn no_target_panics_on_what_a_seed_brings() {
    for (name, target, seeds) in targets::all() {
        let mut random = Random::new(41);
        seeds.iter().for_each(|seed| target(seed));
        for _ in 0..ROUNDS {
            let (seed, other) = (&seeds[random.below(seeds.len())], &seeds[random.below(seeds.len())]);
            target(&mutated(&mut random, seed, other));
        }
        println!("{name}: {ROUNDS} inputs");
    }
}

#[test]
fn what_was_found_once_stays_fixed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/found");
    for (name, target, _) in targets::all() {
        let Ok(files) = std::fs::read_dir(folder.join(name)) else { continue };
        for file in files.flatten() {
            println!("{}", file.path().display());
            target(&std::fs::read(file.path()).expect("readable"));
        }
    }
}
