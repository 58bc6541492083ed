//! Ragged batches: what a sequence gets does not depend on its company, to the bit.

use twostroke::format::block::BlockFormat;
use twostroke::format::model_files::ModelFiles;
use twostroke::kernels::KvType;
use twostroke::model::{LoadOptions, Want};

use crate::model_load::f37_check;
use crate::model_stepper::{Device, Rows, Stepper, matrix_twin, on_adapters, twin};
use crate::model_writer::{Rng, TinyLlama};

/// Random ids below the vocabulary.
fn ids(rng: &mut Rng, count: usize) -> Vec<u32> {
    (0..count).map(|_| u32::try_from(rng.next() % 320).unwrap()).collect()
}

/// Three sequences step together: a long prompt in chunks, a short one, and one that has long been decoding. Positions from
/// `prompt_tokens` on count as generated.
fn check_crowd(label: &str, device: &mut Device, prompt_tokens: u32) -> Vec<Vec<u32>> {
    let tiny = TinyLlama { context: 400, ..TinyLlama::default() };
    let files = ModelFiles::from_gguf_bytes("tiny", tiny.gguf(BlockFormat::Q4_1).bytes()).unwrap();
    let options = LoadOptions { kv: KvType::F16, slots: 3, ..LoadOptions::default() };
    let mut stepper = Stepper::load(&files, device, &options).unwrap();
    stepper.prompt_tokens = prompt_tokens;
    let mut rng = Rng(7);
    let sequences = [ids(&mut rng, 300), ids(&mut rng, 21), ids(&mut rng, 285)];
    let alone: Vec<_> = sequences.iter().map(|ids| stepper.feed(ids, usize::MAX, Want::LastLogits)).collect();
    // each step takes the next tokens of each sequence: (tokens of 0, of 1, of 2)
    let steps = [(100, 0, 270), (100, 3, 1), (30, 17, 1), (69, 0, 12), (1, 1, 1)];
    let mut done = [0; 3];
    let mut last = vec![Vec::new(); 3];
    for (a, b, c) in steps {
        let mut rows = Vec::new();
        for (slot, count) in [a, b, c].into_iter().enumerate().rev() {
            if count == 0 {
                continue;
            }
            let (position, end) = (done[slot], done[slot] + count);
            let want = if end == sequences[slot].len() { Want::LastLogits } else { Want::Argmax };
            rows.push(Rows { slot, position, tokens: &sequences[slot][position..end], want });
            done[slot] = end;
        }
        for (row, words) in rows.iter().zip(stepper.step(&rows)) {
            last[row.slot] = words;
        }
    }
    assert_eq!(done, [300, 21, 285], "the steps cover the sequences");
    for (slot, (alone, crowd)) in alone.iter().zip(&last).enumerate() {
        assert!(alone == crowd, "{label}: sequence {slot}");
    }
    alone
}

#[test]
fn crowd_gives_what_alone_gives_on_the_twin() {
    check_crowd("twin", &mut twin(), u32::MAX);
}

#[test]
fn crowd_gives_what_alone_gives_by_phase_and_each_phase_has_bits_of_its_own() {
    // Chunks that straddle the end of a prompt, prompts and generated rows side by side, and one phase alone.
    let all = [u32::MAX, 290, 20, 0].map(|prompt_tokens| {
        check_crowd(&format!("matrix twin, prompts of {prompt_tokens}"), &mut matrix_twin(), prompt_tokens)
    });
    let plain = check_crowd("twin", &mut twin(), 20);
    assert!(all[3] == plain, "generated rows take the ordinary products");
    for slot in 0..3 {
        assert!(all[0][slot] != plain[slot], "sequence {slot}: a prompt takes others");
    }
    assert!(all[0][0] != all[1][0] && all[1][1] == all[0][1] && all[2][0] != all[1][0], "by position, not by chunk");
}

#[test]
fn crowd_and_f37_hold_on_every_adapter() {
    on_adapters(&[""], |label, device| {
        check_crowd(label, device, u32::MAX);
        f37_check(label, device);
    });
}
