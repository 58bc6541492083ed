//! Stop strings: text goes out as early as no stop string can still begin in it.

/// Passes text on and ends at the first stop string, even when it comes in several deltas.
#[derive(Debug, Clone)]
pub struct StopFilter {
    stops: Vec<String>,
    /// Text that may still turn out to be the start of a stop string.
    held: String,
    hit: bool,
}

impl StopFilter {
    /// A filter for `stops`; empty strings are ignored.
    #[must_use]
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|s| !s.is_empty()).cloned().collect();
        Self { stops, held: String::new(), hit: false }
    }

    /// Takes a delta; returns the text that is now certain to be in front of any stop string.
    pub fn push(&mut self, delta: &str) -> String {
        if self.hit {
            return String::new();
        }
        self.held.push_str(delta);
        if let Some(at) = self.stops.iter().filter_map(|s| self.held.find(s)).min() {
            self.hit = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let keep = self.stops.iter().map(|s| open_bytes(&self.held, s)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// Whether a stop string was met: the answer ends.
    #[must_use]
    pub fn is_hit(&self) -> bool {
        self.hit
    }

    /// What was held back when the answer ends for another reason.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes at the end of `text` that are a true start of `stop`, as many as possible.
fn open_bytes(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest).rev().find(|&n| text.as_bytes().ends_with(&stop.as_bytes()[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::StopFilter;

    fn check(stops: &[&str], deltas: &[&str], want: &[&str], hit: bool) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut filter = StopFilter::new(&stops);
        let mut got: Vec<String> = deltas.iter().map(|d| filter.push(d)).collect();
        assert_eq!(filter.is_hit(), hit, "{stops:?} in {deltas:?}");
        got.push(filter.finish());
        assert_eq!(got, want, "{stops:?} in {deltas:?}");
    }

    #[test]
    fn text_before_a_stop_is_sent_and_the_stop_is_not() {
        check(&[], &["a", "b"], &["a", "b", ""], false);
        check(&["\n"], &["one", "two!\n", "three"], &["one", "two!", "", ""], true);
        check(&["END"], &["aE", "N", "D b"], &["a", "", "", ""], true);
        check(&["END"], &["aE", "N", "X"], &["a", "", "ENX", ""], false);
        check(&["END"], &["aE", "N"], &["a", "", "EN"], false);
        check(&["aab"], &["a", "a", "a", "b"], &["", "", "a", "", ""], true);
        check(&["bc", "abcd"], &["abc"], &["a", ""], true);
        check(&["é!", "x"], &["caf", "é", "?"], &["caf", "", "é?", ""], false);
        check(&["", "x"], &["ax"], &["a", ""], true);
    }
}
