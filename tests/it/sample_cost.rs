use std::time::Instant;
use twostroke::gpu::Options;
use twostroke::kernels::sample::{self, Buffers, Row, Rules, Sizes};
use twostroke::kernels::{Kernel, Tape, argmax};
use twostroke::recording::Player;
use crate::adapters::for_each_adapter;
use crate::pairwise::Random;

#[test]
fn cost() {
    for_each_adapter::<Kernel>(|label, open| {
        let mut player = open(Options::default());
        for dim in [49_152_u32, 256_000] {
        for rows in [1_u32, 8, 32] {
            if dim > 100_000 && rows > 1 { continue; }
            if !label.contains("llvmpipe") && (rows > 1 || dim > 100_000) { continue; }
            let sizes = Sizes { dim, stride: dim, logit_rows: rows, rows_max: rows, slots: rows, context: 2048 };
            let logits = player.create_buffer("l", u64::from(sizes.logits_buffer_rows() * dim) * 4).unwrap();
            let mut random = Random::new(1);
            for row in 0..rows {
                let v: Vec<f32> = (0..dim).map(|_| {
                    let u = f64::from(random.unit() + 1.0) / 2.0 + 1e-9;
                    let bell = (0..6).map(|_| random.unit()).sum::<f32>() * 2.0;
                    bell + if u < 0.01 { (-(u * 100.0).ln()) as f32 * 2.2 } else { 0.0 }
                }).collect();
                player.write(logits, u64::from(row * dim) * 4, bytemuck::cast_slice(&v)).unwrap();
            }
            let buffers = Buffers::new(&mut player, sizes, logits).unwrap();
            let out = player.create_buffer("o", u64::from(rows) * 4).unwrap();
            let warm = Rules { temperature: 1.0, ..Rules::default() };
            let kinds: Vec<(&str, Rules, Option<u32>)> = vec![
                ("greedy", Rules::default(), None),
                ("greedy+lp", Rules::default(), Some(0)),
                ("greedy+top20", Rules::default(), Some(20)),
                ("temp", warm.clone(), None),
                ("min_p", Rules { min_p: 0.05, ..warm.clone() }, None),
                ("top_k 40", Rules { top_k: Some(40), ..warm.clone() }, None),
                ("top_p .9", Rules { top_p: 0.9, ..warm.clone() }, None),
                ("k40 p.9 t.7", Rules { top_k: Some(40), top_p: 0.9, temperature: 0.7, ..warm.clone() }, None),
                ("top_p .9 t2", Rules { top_p: 0.9, temperature: 2.0, ..warm.clone() }, None),
                ("penalties 1000", Rules { repetition: 1.1, ..Rules::default() }, None),
            ];
            let time = |player: &mut dyn Player<Kernel>, tape: &Tape| {
                let mut best = f64::INFINITY;
                for _ in 0..12 {
                    let t = Instant::now();
                    let ticket = player.submit(tape).unwrap();
                    let played = player.wait(ticket).unwrap();
                    let wall = t.elapsed().as_nanos() as f64;
                    best = best.min(played.gpu_nanos.map_or(wall, |n| n as f64));
                }
                best / 1000.0
            };
            let mut tape = Tape::new();
            argmax::record(&mut tape, logits, dim, dim, rows, out);
            tape.read(out, 0, 4);
            let a = time(&mut player, &tape);
            println!("{label} dim {dim} rows {rows}: argmax {a:.0} us");
            for (name, rules, lp) in &kinds {
                let all: Vec<Row<'_>> = (0..rows).map(|r| Row { logits_row: r, slot: r, position: 1000, prompt_tokens: 500, choice: 0, seed: u64::from(r), rules, logprobs: *lp }).collect();
                let mut tape = Tape::new();
                let answer = sample::record(&mut tape, sizes, &buffers, &all);
                tape.read(buffers.records, 0, answer.bytes());
                let n = tape.dispatch_count();
                let t = time(&mut player, &tape);
                println!("   {name:16} {t:8.0} us, {:.0} a row, {n} dispatches", t / f64::from(rows));
            }
            for b in buffers.own().into_iter().chain([logits, out]) { player.drop_buffer(b); }
        }}
    });
}
