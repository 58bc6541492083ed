//! Round times to write on a ruler.

use super::view::View;

/// A mark of the ruler.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// Nanoseconds since the engine's start.
    pub t: f64,
    /// What is written there.
    pub text: String,
}

/// Ticks of `view`, at most `most` of them, at multiples of 1, 2 or 5 powers of ten. Their texts differ: as many digits as the distance
/// between them needs.
#[must_use]
pub fn ticks(view: &View, most: u32) -> Vec<Tick> {
    let least = view.span() / f64::from(most.max(1));
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(power * 10.0);
    let first = (view.from() / step).ceil();
    let mut ticks = Vec::new();
    let mut at = first;
    while at * step <= view.to() && ticks.len() <= most as usize {
        let t = at * step;
        ticks.push(Tick { t, text: text(t, step) });
        at += 1.0;
    }
    ticks
}

/// A time with the digits that a distance of `step` needs, in the unit of the distance's size.
fn text(t: f64, step: f64) -> String {
    let (unit, size) = match step {
        step if step >= 1e8 => ("s", 1e9),
        step if step >= 1e5 => ("ms", 1e6),
        step if step >= 1e2 => ("µs", 1e3),
        _ => ("ns", 1.0),
    };
    let digits = if step / size >= 1.0 { 0 } else { 1 };
    format!("{:.digits$} {unit}", t / size + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(from: f64, to: f64, most: u32) -> Vec<String> {
        let mut view = View::default();
        let around = (to - from) * 0.02 / 1.04;
        view.show(from + around, to - around);
        view.settle();
        ticks(&view, most).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn ticks_are_round_and_few_and_tell_themselves_apart() {
        assert_eq!(texts(0.05e9, 10.05e9, 6), ["2 s", "4 s", "6 s", "8 s", "10 s"]);
        assert_eq!(texts(1.0e9 - 1e6, 1.5e9 + 1e6, 6), ["1.0 s", "1.1 s", "1.2 s", "1.3 s", "1.4 s", "1.5 s"]);
        assert_eq!(texts(1e6 - 10.0, 1.003e6 + 10.0, 4), ["1000 µs", "1001 µs", "1002 µs", "1003 µs"]);
        for power in 1..18 {
            let span = 10f64.powi(power);
            let got = texts(span * 3.1, span * 4.1, 12);
            assert!((4..=13).contains(&got.len()), "{got:?}");
            let mut once = got.clone();
            once.dedup();
            assert_eq!(once, got);
        }
    }
}
