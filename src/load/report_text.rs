//! The figures of a run for people, laid out as vLLM's serve bench prints them.

use serde_json::Value;

use super::report::Report;

const WIDTH: usize = 50;

/// Name and field of the figures above the latencies.
const TOTALS: [(&str, &str); 14] = [
    ("Successful requests:", "completed"),
    ("Failed requests:", "failed"),
    ("Maximum request concurrency:", "max_concurrency"),
    ("Request rate configured (RPS):", "request_rate"),
    ("Benchmark duration (s):", "duration"),
    ("Total input tokens:", "total_input_tokens"),
    ("Cached input tokens:", "cached_tokens"),
    ("Total generated tokens:", "total_output_tokens"),
    ("Request throughput (req/s):", "request_throughput"),
    ("Request goodput (req/s):", "request_goodput"),
    ("Output token throughput (tok/s):", "output_throughput"),
    ("Peak output token throughput (tok/s):", "max_output_tokens_per_s"),
    ("Peak concurrent requests:", "max_concurrent_requests"),
    ("Total token throughput (tok/s):", "total_token_throughput"),
];

/// Heading, name in lines and name in fields of each latency.
const LATENCIES: [(&str, &str, &str); 4] = [
    ("Time to First Token", "TTFT", "ttft_ms"),
    ("Time per Output Token (excl. 1st token)", "TPOT", "tpot_ms"),
    ("Inter-token Latency", "ITL", "itl_ms"),
    ("End-to-end Latency", "E2EL", "e2el_ms"),
];

impl Report {
    /// For people. What was not asked for is left out; a figure of nothing is a dash.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = centred(" Serving Benchmark Result ", '=');
        for (name, field) in TOTALS {
            let value = self.get(field);
            let asked = !matches!(field, "max_concurrency" | "request_goodput") || !value.is_null();
            let rate = field != "request_rate" || value != "inf";
            if asked && rate {
                line(&mut out, name, value);
            }
        }
        for (heading, name, field) in LATENCIES {
            out.push_str(&centred(heading, '-'));
            line(&mut out, &format!("Mean {name} (ms):"), self.get(&format!("mean_{field}")));
            line(&mut out, &format!("Median {name} (ms):"), self.get(&format!("median_{field}")));
            for (key, value) in &self.fields {
                let percent = key.strip_suffix(field).and_then(|p| p.strip_suffix('_')?.strip_prefix('p'));
                if let Some(percent) = percent {
                    line(&mut out, &format!("P{percent} {name} (ms):"), value);
                }
            }
            if field == "itl_ms" {
                line(&mut out, "Max ITL (ms):", self.get("max_itl_ms"));
            }
        }
        out.push_str(&centred("", '='));
        out
    }
}

fn line(out: &mut String, name: &str, value: &Value) {
    let shown = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    };
    out.push_str(&format!("{name:<40} {shown}\n"));
}

/// `heading` in the middle of a line of `fill`.
fn centred(heading: &str, fill: char) -> String {
    let rest = WIDTH.saturating_sub(heading.chars().count());
    let side = |count: usize| fill.to_string().repeat(count);
    format!("{}{heading}{}\n", side(rest / 2), side(rest - rest / 2))
}

#[cfg(test)]
mod tests {
    use super::centred;

    #[test]
    fn headings_are_pythons_centred_ones() {
        assert_eq!(centred(" Serving Benchmark Result ", '='), "============ Serving Benchmark Result ============\n");
        assert_eq!(centred("Time to First Token", '-'), "---------------Time to First Token----------------\n");
        assert_eq!(centred("", '='), "==================================================\n");
    }
}
