//! What is written about requests, steps and times.

use super::spans::as_time;
use crate::run::{Figures, Request, Step};

/// A request's name and figures.
pub(super) fn header_text(request: &Request, figures: &Figures) -> (String, String) {
    let mut parts = vec![request.state.word().to_owned()];
    let ms = |name: &str, value: Option<f64>| value.map(|ms| format!("{name} {}", short(ms)));
    parts.extend(ms("TTFT", figures.ttft));
    if let (Some(p50), Some(p99)) = (figures.itl_p50, figures.itl_p99) {
        parts.push(format!("ITL {}/{}", short(p50), short(p99)));
    }
    parts.extend(figures.tokens_per_second.map(|rate| format!("{rate:.1} tok/s")));
    if figures.cached_tokens > 0 {
        let share = f64::from(figures.cached_tokens) / f64::from(request.prompt_tokens.max(1));
        parts.push(format!("{:.0} % cached", share * 100.0));
    }
    (format!("#{}", request.id), parts.join(", "))
}

/// Milliseconds with as many digits as tell something.
#[must_use]
pub fn short(ms: f64) -> String {
    match ms {
        ms if ms >= 10_000.0 => format!("{:.1} s", ms / 1e3),
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.3} ms"),
    }
}

/// What a step tells when the pointer is on it.
pub(super) fn step_text(step: &Step) -> String {
    let gpu = match step.gpu_nanos {
        0 => String::new(),
        nanos => format!(", {} of it on the GPU", short(as_time(nanos) / 1e6)),
    };
    let all = short(as_time(step.nanos()) / 1e6);
    format!("{} prefill tokens, {} decode rows, {all}{gpu}", step.prefill_tokens, step.decode_rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_tells_its_time_and_the_gpus_where_it_is_known() {
        let mut step =
            Step { t0: 0, t1: 4_000_000, gpu_nanos: 0, prefill_tokens: 7, decode_rows: 2, pages_used: 1, waiting: 0 };
        assert_eq!(step_text(&step), "7 prefill tokens, 2 decode rows, 4.0 ms");
        step.gpu_nanos = 3_000_000;
        assert_eq!(step_text(&step), "7 prefill tokens, 2 decode rows, 4.0 ms, 3.0 ms of it on the GPU");
    }
}
