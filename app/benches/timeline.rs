//! What a long trace costs: to open it, to hold it, and a frame of panning through it, without drawing on an adapter.
//! `cargo bench -p twostroke-app [-- EVENTS]`; the table is in benches/README.md.

use std::io::Write;
use std::time::{Duration, Instant};

use egui::{Key, Modifiers, RawInput, Rect, pos2};
use twostroke::engine::event::{Event, RowKind, StepRow};
use twostroke_app::App;

const FRAMES: u32 = 200;
const STREAMS: u64 = 8;

/// A trace of `count` events: eight requests at a time, each of 4 chunks and 250 tokens.
fn write(path: &std::path::Path, count: u64) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut line = |event: &Event| writeln!(out, "{}", serde_json::to_string(event).expect("an event"));
    let (mut events, mut n, mut next) = (0u64, 0u64, 0u64);
    // Of each stream: its request, and how many of its rows are done.
    let mut live: Vec<(u64, u32)> = Vec::new();
    while events < count {
        let t = n * 20_000_000;
        while (live.len() as u64) < STREAMS {
            line(&Event::Arrive { t, id: next, prompt_tokens: 256, max_tokens: 250, priority: 0 })?;
            line(&Event::Admit { t, id: next, cached_tokens: 0, miss: None })?;
            // Not all at once.
            live.push((next, u32::try_from(next % 200).expect("small")));
            (next, events) = (next + 1, events + 2);
        }
        let row = |(id, done): &(u64, u32)| match done {
            0..4 => StepRow { id: *id, kind: RowKind::Prefill, from: done * 64, tokens: 64, accepted: None },
            _ => StepRow { id: *id, kind: RowKind::Decode, from: 252 + done, tokens: 1, accepted: None },
        };
        let rows = live.iter().map(row).collect();
        line(&Event::Step {
            t0: t,
            t1: t + 19_000_000,
            gpu_ns: Some(18_000_000),
            n,
            rows,
            pages_used: 99,
            waiting: 0,
        })?;
        (n, events) = (n + 1, events + 1);
        live.iter_mut().for_each(|(_, done)| *done += 1);
        for (id, _) in live.extract_if(.., |(_, done)| *done >= 254) {
            line(&Event::Finish { t: t + 19_000_000, id, reason: "length".into(), output_tokens: 250 })?;
            events += 1;
        }
    }
    out.flush()
}

fn input(time: f64, events: Vec<egui::Event>) -> RawInput {
    let screen_rect = Some(Rect::from_min_max(pos2(0.0, 0.0), pos2(1600.0, 1000.0)));
    RawInput { screen_rect, time: Some(time), predicted_dt: 1.0 / 60.0, events, ..RawInput::default() }
}

fn main() -> std::io::Result<()> {
    let count = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("long.jsonl");
    write(&path, count)?;
    let bytes = std::fs::metadata(&path)?.len();

    let ctx = egui::Context::default();
    let mut app = App::new();
    let start = Instant::now();
    app.open(&path, &ctx);
    let mut time = 0.0;
    while app.is_opening() {
        ctx.run_ui(input(time, Vec::new()), |_| ()).textures_delta.clear();
        app.logic(&ctx);
        time += 1.0 / 60.0;
        std::thread::sleep(Duration::from_micros(200));
    }
    let opened = start.elapsed();
    let store = app.store();
    assert_eq!(store.events(), count.max(store.events()), "all are there");
    println!("{} events, {:.0} MB of JSON Lines", store.events(), bytes as f64 / 1e6);
    println!("opened in {:.2} s", opened.as_secs_f64());
    println!("held in {:.1} bytes an event", store.bytes() as f64 / store.events() as f64);

    for (name, zooms) in [("the whole run", 0), ("a hundredth", 13), ("some steps", 33)] {
        app.timeline().run(twostroke_app::timeline::Command::Whole, &twostroke_app::run::Store::default());
        let press = |key| egui::Event::Key {
            key,
            physical_key: None,
            pressed: true,
            repeat: false,
            modifiers: Modifiers::NONE,
        };
        let mut frame = |app: &mut App, events| {
            time += 1.0 / 60.0;
            let start = Instant::now();
            let mut out = ctx.run_ui(input(time, events), |ui| app.ui(ui));
            out.textures_delta.clear();
            let primitives = ctx.tessellate(out.shapes, out.pixels_per_point);
            (start.elapsed(), primitives.len())
        };
        frame(&mut app, vec![press(Key::Num0)]);
        for _ in 0..zooms {
            frame(&mut app, vec![press(Key::W)]);
        }
        // Until the zoom has come to rest.
        for _ in 0..120 {
            frame(&mut app, Vec::new());
        }
        let mut took: Vec<Duration> =
            (0..FRAMES).map(|n| frame(&mut app, vec![press(if n % 20 < 10 { Key::D } else { Key::A })]).0).collect();
        took.sort_unstable();
        let ms = |at: usize| took[at].as_secs_f64() * 1e3;
        println!(
            "panning through {name}: {:.2} ms a frame at the median, {:.2} ms at most",
            ms(took.len() / 2),
            ms(took.len() - 1)
        );
    }
    Ok(())
}
