//! A launch of sampling: rows of logits, histories, and what each row asks for.

use twostroke::kernels::sample::{self, Buffers, Row, Rules, Sampled, Sizes};
use twostroke::kernels::{Kernel, Tape};
use twostroke::recording::Player;

use crate::pairwise::Random;

/// What no launch may write over.
pub(crate) const UNTOUCHED: u32 = 0x7ead_0000;

/// A row and its sequence.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) logits_row: u32,
    pub(crate) slot: u32,
    /// Prompt and answer so far; what lies behind is [`UNTOUCHED`].
    pub(crate) prompt: Vec<u32>,
    pub(crate) generated: Vec<u32>,
    pub(crate) choice: u32,
    pub(crate) seed: u64,
    pub(crate) rules: Rules,
    pub(crate) logprobs: Option<u32>,
}

impl Asked {
    /// A fresh sequence in slot `row` over the logits of row `row`.
    pub(crate) fn new(row: u32, rules: Rules) -> Self {
        let seed = 0x5eed_0000_0001 + u64::from(row);
        Self {
            logits_row: row,
            slot: row,
            prompt: vec![0],
            generated: vec![],
            choice: 0,
            seed,
            rules,
            logprobs: Some(20),
        }
    }

    pub(crate) fn position(&self) -> u32 {
        (self.prompt.len() + self.generated.len()) as u32
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) dim: u32,
    pub(crate) context: u32,
    /// By row, `dim` floats each.
    pub(crate) logits: Vec<Vec<f32>>,
    pub(crate) asked: Vec<Asked>,
}

impl Case {
    pub(crate) fn sizes(&self) -> Sizes {
        let rows_max = self.asked.len() as u32;
        let slots = self.asked.iter().map(|asked| asked.slot + 1).max().unwrap_or(1);
        // An odd number of words that belong to nobody between rows.
        let stride = self.dim + 3;
        Sizes { dim: self.dim, stride, logit_rows: self.logits.len() as u32, rows_max, slots, context: self.context }
    }

    fn history(&self) -> Vec<u32> {
        let mut history = vec![UNTOUCHED; (self.sizes().slots * self.context) as usize];
        for asked in &self.asked {
            let ids = asked.prompt.iter().chain(&asked.generated);
            history[(asked.slot * self.context) as usize..].iter_mut().zip(ids).for_each(|(to, id)| *to = *id);
        }
        history
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let rows = self.asked.iter();
        rows.map(|asked| Row {
            logits_row: asked.logits_row,
            slot: asked.slot,
            position: asked.position(),
            prompt_tokens: asked.prompt.len() as u32,
            choice: asked.choice,
            seed: asked.seed,
            rules: &asked.rules,
            logprobs: asked.logprobs,
        })
        .collect()
    }

    /// Buffers with logits and histories in them.
    pub(crate) fn buffers(&self, player: &mut dyn Player<Kernel>) -> Buffers {
        let sizes = self.sizes();
        let bytes = u64::from(sizes.logits_buffer_rows() * sizes.stride) * 4;
        let logits = player.create_buffer("logits", bytes).expect("room for logits");
        for (row, values) in self.logits.iter().enumerate() {
            let at = row as u64 * u64::from(sizes.stride) * 4;
            player.write(logits, at, bytemuck::cast_slice(values)).expect("logits");
        }
        let buffers = Buffers::new(player, sizes, logits).expect("room for scratch");
        player.write(buffers.history, 0, bytemuck::cast_slice(&self.history())).expect("history");
        buffers
    }

    /// Plays the launch twice in one recording (scratch must be left as it was found) and checks both and the history.
    pub(crate) fn play(&self, label: &str, player: &mut dyn Player<Kernel>) -> Vec<Sampled> {
        let (sizes, buffers, rows) = (self.sizes(), self.buffers(player), self.rows());
        let mut tape = Tape::new();
        let answer = sample::record(&mut tape, sizes, &buffers, &rows);
        tape.read(buffers.records, 0, answer.bytes());
        let words = u64::from(sizes.slots * sizes.context);
        tape.read(buffers.history, 0, words * 4);
        let mut both = Vec::new();
        let mut want = self.history();
        for pass in 0..2 {
            let ticket = player.submit(&tape).unwrap_or_else(|e| panic!("{label}: {e}"));
            let played = player.wait(ticket).unwrap_or_else(|e| panic!("{label}: {e}")).words;
            let (records, history) = played.split_at(answer.bytes() as usize / 4);
            let all: Vec<Sampled> = (0..rows.len()).map(|row| answer.sampled(records, row)).collect();
            for (row, one) in rows.iter().zip(&all) {
                if row.position < sizes.context {
                    let id = if one.id == u32::MAX { 0 } else { one.id };
                    want[(row.slot * sizes.context + row.position) as usize] = id;
                }
            }
            assert!(history == want, "{label}, pass {pass}: history");
            both.push(all);
        }
        assert_eq!(both[0], both[1], "{label}: the second of two equal launches");
        buffers.own().into_iter().chain([buffers.logits]).for_each(|id| player.drop_buffer(id));
        both.swap_remove(0)
    }
}

/// Kinds of rows.
pub(crate) const KINDS: usize = 8;

/// `dim` logits of a kind: a language model's bell, wide, narrow, all equal, few values, one peak, zeros of both signs, cold.
pub(crate) fn logits(kind: usize, dim: u32, random: &mut Random) -> Vec<f32> {
    let bell = |random: &mut Random| (0..6).map(|_| random.unit()).sum::<f32>();
    let mut row: Vec<f32> = (0..dim)
        .map(|_| match kind {
            0 => 3.0 * bell(random),
            1 => 300.0 * random.unit(),
            2 => 7.0 + 1e-4 * random.unit(),
            3 => -2.5,
            4 => random.below(3) as f32,
            5 => random.unit(),
            6 => [0.0, -0.0][random.below(2)],
            _ => -1e30 * (1.5 + random.unit()),
        })
        .collect();
    if kind == 5 {
        row[random.below(dim as usize)] = 25.0;
    }
    row
}
