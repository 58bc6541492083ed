//! What is asked of an answer: `--goodput ttft:MS tpot:MS e2el:MS`.

use crate::error::{Error, Result};

/// Limits in milliseconds; an answer is good when it keeps each that is there.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Goodput {
    /// Of the time to the first token.
    pub ttft_ms: Option<f64>,
    /// Of the time per output token; an answer of one token has none and keeps it.
    pub tpot_ms: Option<f64>,
    /// Of the whole answer.
    pub e2el_ms: Option<f64>,
}

impl Goodput {
    /// Reads `NAME:MS` pairs; `None` when there are none.
    ///
    /// # Errors
    /// `Usage` for anything else, and for a name that comes twice.
    pub fn parse(pairs: &[String]) -> Result<Option<Self>> {
        let mut goodput = Self::default();
        for pair in pairs {
            let wrong = |expected: &str| Error::Usage(format!("--goodput: expected {expected}, got {pair}"));
            let (name, limit) = pair.split_once(':').ok_or_else(|| wrong("NAME:MS such as ttft:500"))?;
            let field = match name {
                "ttft" => &mut goodput.ttft_ms,
                "tpot" => &mut goodput.tpot_ms,
                "e2el" => &mut goodput.e2el_ms,
                _ => return Err(wrong("ttft, tpot or e2el before the colon")),
            };
            let limit = limit.parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms >= 0.0);
            let limit = limit.ok_or_else(|| wrong("milliseconds, at least 0, behind the colon"))?;
            if field.replace(limit).is_some() {
                return Err(wrong("each name once"));
            }
        }
        Ok((!pairs.is_empty()).then_some(goodput))
    }

    /// Whether an answer with these figures is good. One without a first token is not when a TTFT is asked for.
    #[must_use]
    pub fn keeps(&self, ttft_ms: Option<f64>, tpot_ms: Option<f64>, e2el_ms: f64) -> bool {
        let within = |limit: Option<f64>, value: f64| limit.is_none_or(|limit| value <= limit);
        within(self.ttft_ms, ttft_ms.unwrap_or(f64::INFINITY))
            && within(self.tpot_ms, tpot_ms.unwrap_or(0.0))
            && within(self.e2el_ms, e2el_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Goodput>> {
        Goodput::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn limits_are_read_and_an_answer_on_the_limit_is_good() {
        assert_eq!(parse("").expect("nothing"), None);
        let goodput = parse("tpot:50 ttft:0.5").expect("two").expect("some");
        assert_eq!(goodput, Goodput { ttft_ms: Some(0.5), tpot_ms: Some(50.0), e2el_ms: None });
        assert!(goodput.keeps(Some(0.5), Some(50.0), 1e9));
        assert!(goodput.keeps(Some(0.5), None, 1e9), "one token: no TPOT to break");
        assert!(!goodput.keeps(Some(0.6), Some(1.0), 0.0));
        assert!(!goodput.keeps(Some(0.1), Some(50.1), 0.0));
        assert!(!goodput.keeps(None, None, 0.0), "no token at all");
    }

    #[test]
    fn anything_else_is_wrong_usage() {
        for text in ["ttft", "ttft:", "ttft:x", "ttft:-1", "ttft:inf", "ttft:nan", "itl:5", ":5", "ttft:1 ttft:2"] {
            let error = parse(text).expect_err(text);
            assert!(error.exit_code() == 2 && error.to_string().contains("--goodput"), "{error}");
        }
    }
}
