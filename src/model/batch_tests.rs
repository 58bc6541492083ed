//! Tests of the ragged batch.

use super::*;

fn sizes() -> Sizes {
    Sizes {
        rows: 64,
        logit_rows: 8,
        penalised_rows: 0,
        slots: 4,
        table_stride: 64,
        hidden: 64,
        qkv: 128,
        q: 64,
        attn: 64,
        gate_up: 320,
        act: 160,
        vocab: 100,
        row_splits: 8,
        split_bytes: 4 * 18 * 4,
    }
}

const TOKENS: [u32; 40] = [7; 40];
const PAGES: [u32; 64] = [3; 64];

fn sequence(slot: u32, position: u32, count: usize, want: Want) -> SequenceRows<'static> {
    SequenceRows { slot, position, tokens: &TOKENS[..count], pages: &PAGES, prompt_tokens: u32::MAX, want }
}

#[test]
fn prompts_make_tiles_and_single_rows_make_waves() {
    let sequences = [
        sequence(0, 600, 1, Want::Argmax),
        sequence(1, 0, 20, Want::Nothing),
        sequence(2, 10, 1, Want::Argmax),
        sequence(3, 255, 3, Want::LastLogits),
    ];
    let batch = Batch::new(&sequences, &sizes(), 4, 8, false);
    assert_eq!(batch.rows.len(), 25);
    assert_eq!(batch.rows[3], Row { token: 7, position: 2, slot: 1, pad: 0 });
    let tile = |row, rows, slot, position| Tile { row, rows, slot, position };
    assert_eq!(batch.prefill_tiles, 3);
    assert_eq!(
        batch.tiles,
        [
            tile(1, 8, 1, 0),
            tile(9, 8, 1, 8),
            tile(17, 4, 1, 16),
            tile(21, 1, 2, 10),
            tile(22, 1, 3, 255),
            tile(23, 1, 3, 256),
            tile(24, 1, 3, 257),
            tile(0, 1, 0, 600),
        ]
    );
    // 8 rows times splits: four rows of up to 2 splits, then one of 3
    let wave = |first_tile, tiles, splits| Wave { first_tile, tiles, splits };
    assert_eq!(batch.waves, [wave(3, 4, 2), wave(7, 1, 3)]);
}

#[test]
fn by_phase_prompts_lie_behind_generated_rows_and_answers_stay_in_order() {
    let of = |prompt_tokens, rows| SequenceRows { prompt_tokens, ..rows };
    let sequences = [
        of(100, sequence(0, 0, 10, Want::Nothing)),  // a prompt's
        of(5, sequence(1, 600, 1, Want::Argmax)),    // generated
        of(20, sequence(2, 17, 6, Want::AllLogits)), // three of each
        of(9, sequence(3, 9, 2, Want::Nothing)),     // generated, just so
        of(4, sequence(0, 3, 1, Want::Argmax)),      // the last of a prompt
    ];
    let batch = Batch::new(&sequences, &sizes(), 1, 8, true);
    let at = |row: &Row| (row.slot, row.position);
    assert_eq!((batch.rows.len(), batch.matrix_rows), (20, 14));
    let generated: Vec<_> = batch.rows[..6].iter().map(at).collect();
    assert_eq!(generated, [(1, 600), (2, 20), (2, 21), (2, 22), (3, 9), (3, 10)]);
    let prompts: Vec<_> = batch.rows[16..].iter().map(at).collect();
    assert_eq!(prompts, [(2, 17), (2, 18), (2, 19), (0, 3)]);
    assert_eq!(batch.map, [0, 19, 16, 17, 18, 1, 2, 3], "argmaxes, then logits in the order of tokens");
    let tile = |row, rows, slot, position| Tile { row, rows, slot, position };
    assert_eq!(batch.tiles[..2], [tile(1, 3, 2, 20), tile(4, 2, 3, 9)]);
    assert!(batch.tiles.contains(&tile(16, 3, 2, 17)));
    let whole = Batch::new(&sequences, &sizes(), 1, 8, false);
    assert_eq!((whole.matrix_rows, whole.rows[10].position), (0, 600), "as given");
}

#[test]
fn ids_come_before_logits_whatever_the_order_of_sequences() {
    let sequences = [
        sequence(0, 0, 3, Want::AllLogits),
        sequence(1, 0, 5, Want::Argmax),
        sequence(2, 0, 6, Want::Nothing),
        sequence(3, 0, 2, Want::Argmax),
        sequence(0, 3, 4, Want::LastLogits),
    ];
    let batch = Batch::new(&sequences, &sizes(), 4, 8, false);
    assert_eq!(batch.argmax_rows, 2);
    assert_eq!(batch.map, [7, 15, 0, 1, 2, 19]);
    let answer = |start, rows, row_words| Answer { start, rows, row_words };
    assert_eq!(
        batch.answers,
        [answer(2, 3, 100), answer(0, 1, 1), answer(0, 0, 0), answer(1, 1, 1), answer(302, 1, 100),]
    );
}

#[test]
fn each_broken_promise_of_the_caller_is_caught() {
    let broken = |sequence: SequenceRows<'static>| {
        std::panic::catch_unwind(|| Batch::new(&[sequence], &sizes(), 4, 8, false)).unwrap_err()
    };
    broken(sequence(4, 0, 1, Want::Nothing)); // no such slot
    broken(sequence(0, 0, 0, Want::Nothing)); // no tokens
    broken(sequence(0, 1024, 1, Want::Nothing)); // past its pages
    broken(sequence(0, 0, 9, Want::AllLogits)); // more logits than there is room for
    broken(SequenceRows { tokens: &[100], ..sequence(0, 0, 1, Want::Nothing) }); // no such token
}
