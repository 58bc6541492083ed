//! Rows of `bench` as llama-bench prints them: Markdown, JSON, JSON Lines, CSV.

use serde::Serialize;

use super::args::OutputArg;
use super::options::BenchTest;
use super::output::{Output, json_text};
use crate::error::Result;

/// One measured test; the fields are those of the JSON, in order.
#[derive(Debug, Clone, Serialize)]
pub(super) struct BenchRow<'a> {
    pub(super) model_type: String,
    pub(super) model_size: u64,
    pub(super) model_n_params: u64,
    pub(super) n_prompt: u32,
    pub(super) n_gen: u32,
    pub(super) n_depth: u32,
    pub(super) n_parallel: u32,
    pub(super) adapter: &'a str,
    pub(super) tier: &'a str,
    pub(super) avg_ns: u64,
    pub(super) avg_ts: f64,
    pub(super) stddev_ts: f64,
    /// Bytes that had to be read, against the read bandwidth measured in the same run; none on the twin.
    pub(super) pct_bandwidth: Option<f64>,
    /// Operations that had to be done, against the FMA rate measured in the same run; none on the twin.
    pub(super) pct_flops: Option<f64>,
    pub(super) samples_ns: Vec<u64>,
    pub(super) samples_ts: Vec<f64>,
    /// API of the adapter; in the Markdown table only.
    #[serde(skip)]
    pub(super) backend: &'a str,
}

/// Prints rows as they come.
pub(super) struct Table {
    output: OutputArg,
    rows: usize,
}

/// Columns of the Markdown table: name and width; a negative width stands to the left.
const COLUMNS: [(&str, i32); 6] =
    [("model", -30), ("size", 10), ("params", 10), ("backend", -10), ("test", 15), ("t/s", 20)];

/// Columns of the CSV: all fields of the JSON but the samples.
const CSV: [&str; 14] = [
    "model_type",
    "model_size",
    "model_n_params",
    "n_prompt",
    "n_gen",
    "n_depth",
    "n_parallel",
    "adapter",
    "tier",
    "avg_ns",
    "avg_ts",
    "stddev_ts",
    "pct_bandwidth",
    "pct_flops",
];

impl Table {
    /// A table in that format.
    #[must_use]
    pub(super) fn new(output: OutputArg) -> Self {
        Self { output, rows: 0 }
    }

    /// Prints what stands before the rows.
    ///
    /// # Errors
    /// Standard output's.
    pub(super) fn begin(&mut self, out: &mut Output) -> Result<()> {
        match self.output {
            OutputArg::Md => out.text(&markdown_head()),
            OutputArg::Json => out.text("["),
            OutputArg::Jsonl => Ok(()),
            OutputArg::Csv => out.line(&CSV.join(",")),
        }
    }

    /// Prints a row.
    ///
    /// # Errors
    /// Standard output's.
    pub(super) fn row(&mut self, out: &mut Output, row: &BenchRow<'_>) -> Result<()> {
        self.rows += 1;
        match self.output {
            OutputArg::Md => out.line(&markdown_row(row)),
            OutputArg::Json => out.text(&format!("{}\n  {}", if self.rows > 1 { "," } else { "" }, json_text(row))),
            OutputArg::Jsonl => out.json(row),
            OutputArg::Csv => out.line(&csv_row(row)),
        }
    }

    /// Prints what stands behind the rows.
    ///
    /// # Errors
    /// Standard output's.
    pub(super) fn end(&mut self, out: &mut Output) -> Result<()> {
        match self.output {
            OutputArg::Json => out.line("\n]"),
            OutputArg::Md | OutputArg::Jsonl | OutputArg::Csv => Ok(()),
        }
    }
}

/// `pp512`, `tg128`, `pp512+tg128`, with ` @ d1024` behind 1024 tokens.
#[must_use]
pub(super) fn test_name(test: BenchTest) -> String {
    let name = match (test.n_prompt, test.n_gen) {
        (p, 0) => format!("pp{p}"),
        (0, n) => format!("tg{n}"),
        (p, n) => format!("pp{p}+tg{n}"),
    };
    let name = if test.n_depth > 0 { format!("{name} @ d{}", test.n_depth) } else { name };
    if test.n_parallel > 1 { format!("{name} x {}", test.n_parallel) } else { name }
}

/// The roofline of a test: its shares of the adapter's limits, and which one it meets first.
#[must_use]
pub(super) fn roofline(test: BenchTest, row: &BenchRow<'_>) -> Option<String> {
    let (flops, bandwidth) = (row.pct_flops?, row.pct_bandwidth?);
    let bound = if flops >= bandwidth { "arithmetic" } else { "bandwidth" };
    Some(format!(
        "{}: {flops:.1} % of the f32 rate, {bandwidth:.1} % of the read bandwidth; bound by {bound}",
        test_name(test)
    ))
}

fn cell(text: &str, width: i32) -> String {
    let room = width.unsigned_abs() as usize;
    if width < 0 { format!(" {text:<room$} |") } else { format!(" {text:>room$} |") }
}

fn markdown_head() -> String {
    let names: String = COLUMNS.iter().map(|&(name, width)| cell(name, width)).collect();
    let rule = |width: i32| {
        let dashes = "-".repeat(width.unsigned_abs() as usize - 1);
        format!(" {dashes}{} |", if width < 0 { '-' } else { ':' })
    };
    let rules: String = COLUMNS.iter().map(|&(_, width)| rule(width)).collect();
    format!("|{names}\n|{rules}\n")
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn markdown_row(row: &BenchRow<'_>) -> String {
    let (bytes, params) = (row.model_size as f64, row.model_n_params as f64);
    let gib = f64::from(1 << 30);
    let size =
        if bytes < gib { format!("{:.2} MiB", bytes / 1024.0 / 1024.0) } else { format!("{:.2} GiB", bytes / gib) };
    let params = if params < 1e9 { format!("{:.2} M", params / 1e6) } else { format!("{:.2} B", params / 1e9) };
    let test = test_name(BenchTest {
        n_prompt: row.n_prompt,
        n_gen: row.n_gen,
        n_depth: row.n_depth,
        n_parallel: row.n_parallel,
    });
    let rate = format!("{:.2} ± {:.2}", row.avg_ts, row.stddev_ts);
    let texts = [row.model_type.as_str(), &size, &params, row.backend, &test, &rate];
    let cells: String = texts.iter().zip(COLUMNS).map(|(text, (_, width))| cell(text, width)).collect();
    format!("|{cells}")
}

fn csv_row(row: &BenchRow<'_>) -> String {
    let json = serde_json::to_value(row).expect("a plain struct serialises");
    let field = |name: &str| match &json[name] {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let quoted = CSV.iter().map(|name| format!("\"{}\"", field(name).replace('"', "\"\"")));
    quoted.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> BenchRow<'static> {
        BenchRow {
            model_type: "llama 135M Q4_1".into(),
            model_size: 96_185_344,
            model_n_params: 134_515_008,
            n_prompt: 512,
            n_gen: 0,
            n_depth: 16,
            n_parallel: 1,
            adapter: "a \"quoted\" name",
            tier: "base",
            avg_ns: 4_000_000_000,
            avg_ts: 128.0,
            stddev_ts: 0.5,
            pct_bandwidth: None,
            pct_flops: None,
            samples_ns: vec![4_000_000_000],
            samples_ts: vec![128.0],
            backend: "Vulkan",
        }
    }

    #[test]
    fn markdown_is_aligned_like_llama_benchs() {
        let head = markdown_head();
        let lines: Vec<&str> = head.lines().collect();
        assert_eq!(
            lines[0],
            "| model                          |       size |     params | backend    |            test |                  t/s |"
        );
        assert_eq!(
            lines[1],
            "| ------------------------------ | ---------: | ---------: | ---------- | --------------: | -------------------: |"
        );
        assert_eq!(
            markdown_row(&example()),
            "| llama 135M Q4_1                |  91.73 MiB |   134.52 M | Vulkan     |     pp512 @ d16 |        128.00 ± 0.50 |"
        );
    }

    #[test]
    fn csv_has_every_field_but_the_samples() {
        let row = csv_row(&example());
        assert!(row.contains("\"a \"\"quoted\"\" name\""), "{row}");
        let json = serde_json::to_value(example()).expect("plain");
        let fields: Vec<&str> = json.as_object().expect("object").keys().map(String::as_str).collect();
        let without: Vec<&str> = fields.into_iter().filter(|name| !name.starts_with("samples")).collect();
        assert_eq!(without, CSV);
    }
}
