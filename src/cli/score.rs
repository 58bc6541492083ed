//! `score`: what the model thinks of given tokens, a line of JSON a line of input.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::args::ScoreArgs;
use super::load;
use super::options::ScoreOptions;
use super::output::Output;
use super::run::{check_fits, never_empty};
use super::{interrupt, prompt, say};
use crate::engine::Scorer;
use crate::error::{Error, Result};
use crate::format::model_files::Description;
use crate::limits::PROMPT_BYTES_MAX;
use crate::text::tokenizer::Tokenizer;

/// One line of the input.
#[derive(Debug, Deserialize)]
struct Item {
    text: Option<String>,
    ids: Option<Vec<u32>>,
}

/// One line of the output.
#[derive(Debug, Serialize)]
struct Scored {
    ids: Vec<u32>,
    /// `nll[i]` of `ids[i + 1]`.
    nll: Vec<f64>,
    /// Absent under two ids.
    mean_nll: Option<f64>,
    /// After each id.
    argmax: Vec<u32>,
    /// After the last id, the likeliest first.
    top_ids: Vec<u32>,
    top_logits: Vec<f32>,
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps a line from its score, with the line's number.
pub(super) fn score(args: &ScoreArgs) -> Result<()> {
    let options = ScoreOptions::new(args, std::io::stdout().is_terminal())?;
    let mut lines = Lines::open(&options.input)?;
    let files = load::files(&options.model)?;
    let mut scorer = load::load(&files, &options.model, None)?;
    let texts =
        Texts { description: &files.description, file: options.model.tokenizer.as_deref(), tokenizer: OnceCell::new() };
    let mut out = Output::stdout();
    if !options.json {
        out.line("line tokens  mean nll  perplexity  last argmax")?;
    }
    let (mut sum, mut count) = (0.0, 0);
    while let Some(line) = lines.next_line()? {
        let scored = score_line(&mut scorer, &texts, &line, options.top).map_err(|e| lines.place(e))?;
        if options.json {
            out.json(&scored)?;
        } else {
            out.line(&table_row(lines.number, &scored))?;
        }
        sum += scored.nll.iter().sum::<f64>();
        count += scored.nll.len();
    }
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    if count > 0 {
        let mean = sum / count as f64;
        let model = scorer.model().type_name();
        say(&format!("{model}: mean nll {mean:.4} over {count} tokens, perplexity {:.3}", mean.exp()));
    }
    Ok(())
}

fn score_line(scorer: &mut Scorer, texts: &Texts<'_>, line: &str, top: usize) -> Result<Scored> {
    let wrong =
        |got: &str| Error::Request(format!("expected {{\"text\": \"...\"}} or {{\"ids\": [1, 2]}}, got: {got}"));
    if !line.trim_start().starts_with('{') {
        return Err(wrong("no JSON object"));
    }
    let item: Item = serde_json::from_str(line).map_err(|error| wrong(&error.to_string()))?;
    let ids = match (item.text, item.ids) {
        (Some(text), None) => texts.encode(&text, scorer.model().context_tokens())?,
        (None, Some(ids)) if ids.is_empty() => {
            return Err(Error::Request("ids: expected at least one, got none".into()));
        }
        (None, Some(ids)) => ids,
        (Some(_), Some(_)) => return Err(Error::Request("expected text or ids, got both".into())),
        (None, None) => return Err(Error::Request("expected text or ids, got neither".into())),
    };
    let mut nll = Vec::with_capacity(ids.len().saturating_sub(1));
    let mut argmax = Vec::with_capacity(ids.len());
    let mut best = Vec::new();
    scorer.score(&ids, &mut |row, logits| {
        interrupt::check()?;
        argmax.push(largest(logits));
        match ids.get(row + 1) {
            Some(&next) => nll.push(negative_log_likelihood(logits, next)),
            None => best = top_of(logits, top),
        }
        Ok(())
    })?;
    assert!(argmax.len() == ids.len(), "{} rows of {} ids", argmax.len(), ids.len());
    let (top_ids, top_logits) = best.into_iter().unzip();
    Ok(Scored { mean_nll: mean(&nll), ids, nll, argmax, top_ids, top_logits })
}

/// Texts to ids; the tokenizer is made for the first text, so that ids need none.
struct Texts<'a> {
    description: &'a Description,
    file: Option<&'a Path>,
    tokenizer: OnceCell<Tokenizer>,
}

impl Texts<'_> {
    fn encode(&self, text: &str, context_tokens: u32) -> Result<Vec<u32>> {
        let tokenizer = match self.tokenizer.get() {
            Some(tokenizer) => tokenizer,
            None => {
                let made = Tokenizer::new(self.description, self.file)?;
                self.tokenizer.get_or_init(|| made)
            }
        };
        check_fits(tokenizer.fewest_tokens(text), 0, context_tokens)?;
        never_empty(tokenizer.encode_raw(text)?, tokenizer)
    }
}

/// The input, a line at a time, each bounded.
struct Lines {
    from: Box<dyn BufRead>,
    name: String,
    /// Of the last line returned, from 1.
    number: u64,
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self { from: Box::new(std::io::stdin().lock()), name: "stdin".into(), number: 0 });
        }
        let file =
            interrupt::while_waiting(|| File::open(path)).map_err(|source| Error::io("open input", path, source))?;
        Ok(Self { from: Box::new(BufReader::new(file)), name: path.display().to_string(), number: 0 })
    }

    /// The next line that is not blank.
    fn next_line(&mut self) -> Result<Option<String>> {
        loop {
            let mut bytes = Vec::new();
            let mut bounded = (&mut self.from).take(PROMPT_BYTES_MAX as u64 + 1);
            let got = interrupt::while_waiting(|| bounded.read_until(b'\n', &mut bytes));
            let got = got.map_err(|source| Error::io("read input", &self.name, source))?;
            if got == 0 {
                return Ok(None);
            }
            self.number += 1;
            if bytes.len() > PROMPT_BYTES_MAX {
                return Err(self.place(Error::Request(format!("expected at most {PROMPT_BYTES_MAX} bytes, got more"))));
            }
            let line = prompt::utf8(bytes, "text", "this line").map_err(|e| self.place(e))?;
            let line = if self.number == 1 { prompt::without_mark(line) } else { line };
            if !line.trim().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Puts the place in front of an error that the line caused.
    fn place(&self, error: Error) -> Error {
        match error {
            Error::Request(_) | Error::ContextFull { .. } | Error::Tokenizer(_) | Error::NotFinite { .. } => {
                Error::Request(format!("{} line {}: {error}", self.name, self.number))
            }
            other => other,
        }
    }
}

/// Index of the largest; ties go to the lowest.
fn largest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] {
            best = i;
        }
    }
    u32::try_from(best).expect("a vocabulary fits u32")
}

/// `log(sum(exp(logits))) - logits[id]`, in double precision.
fn negative_log_likelihood(logits: &[f32], id: u32) -> f64 {
    let most = f64::from(logits[largest(logits) as usize]);
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - most).exp()).sum();
    sum.ln() + most - f64::from(logits[id as usize])
}

/// The `count` largest, the largest first; ties go to the lowest id.
fn top_of(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    let count = count.min(all.len());
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if count < all.len() {
        all.select_nth_unstable_by(count, order);
        all.truncate(count);
    }
    all.sort_unstable_by(order);
    all
}

#[allow(clippy::cast_precision_loss, reason = "a context has few tokens")]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn table_row(number: u64, scored: &Scored) -> String {
    let last = scored.argmax.last().map_or(String::new(), ToString::to_string);
    let (mean, perplexity) = match scored.mean_nll {
        Some(mean) => (format!("{mean:.4}"), format!("{:.3}", mean.exp())),
        None => ("-".into(), "-".into()),
    };
    format!("{number:>4} {:>6} {mean:>9} {perplexity:>11} {last:>12}", scored.ids.len())
}

#[cfg(test)]
mod tests {
    use super::{largest, mean, negative_log_likelihood, top_of};

    #[test]
    fn ties_go_to_the_lowest_id() {
        assert_eq!(largest(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(top_of(&[1.0, 3.0, 3.0, 2.0], 3), [(1, 3.0), (2, 3.0), (3, 2.0)]);
        assert_eq!(top_of(&[1.0, 3.0], 9), [(1, 3.0), (0, 1.0)]);
        assert_eq!(top_of(&[1.0], 0), []);
    }

    #[test]
    fn likelihoods_sum_to_one() {
        let logits = [1.0_f32, -2.0, 700.0, 699.5];
        let sum: f64 = (0..4).map(|id| (-negative_log_likelihood(&logits, id)).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        assert!(mean(&[]).is_none());
    }
}
