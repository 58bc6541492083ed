//! Which stretch of time is seen.

/// Shortest stretch, in nanoseconds: far below a step.
const SPAN_MIN: f64 = 10.0;
/// What is left of the way to the goal after a second of animation.
const LEFT_A_SECOND: f64 = 1e-6;
/// How near the goal the animation ends, in parts of what is seen.
const NEAR: f64 = 1e-4;
/// Part of the width that stays empty right of what is live.
const AHEAD: f64 = 0.04;

/// A view of time, in nanoseconds since the engine's start. It moves towards its goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    now: Stretch,
    goal: Stretch,
    /// It keeps up with what is live.
    pub follows: bool,
}

/// From and to, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretch {
    from: f64,
    to: f64,
}

impl Stretch {
    fn span(self) -> f64 {
        self.to - self.from
    }
}

impl Default for View {
    fn default() -> Self {
        let second = Stretch { from: 0.0, to: 1e9 };
        Self { now: second, goal: second, follows: true }
    }
}

impl View {
    /// The first time that is seen.
    #[must_use]
    pub fn from(&self) -> f64 {
        self.now.from
    }

    /// The last time that is seen.
    #[must_use]
    pub fn to(&self) -> f64 {
        self.now.to
    }

    /// How much time is seen.
    #[must_use]
    pub fn span(&self) -> f64 {
        self.now.span()
    }

    /// Where `t` lies in a width of 1.
    #[must_use]
    pub fn place(&self, t: f64) -> f64 {
        (t - self.now.from) / self.span()
    }

    /// Which time lies at `place` of a width of 1.
    #[must_use]
    pub fn time(&self, place: f64) -> f64 {
        self.now.from + place * self.span()
    }

    /// Moves by `part` of what is seen.
    pub fn pan(&mut self, part: f64) {
        self.follows = false;
        let by = part * self.goal.span();
        self.goal = Stretch { from: self.goal.from + by, to: self.goal.to + by };
    }

    /// Moves by `part` of what is seen, at once: under a pointer that drags.
    pub fn drag(&mut self, part: f64) {
        self.pan(part);
        self.now = self.goal;
    }

    /// Shows `factor` of the time, with what is at `place` staying there.
    pub fn zoom(&mut self, factor: f64, place: f64) {
        assert!(factor.is_finite() && factor > 0.0, "zoom by {factor}");
        let span = (self.goal.span() * factor).clamp(SPAN_MIN, f64::from(1u32 << 31) * 1e9);
        let fixed = self.goal.from + place * self.goal.span();
        let from = fixed - place * span;
        self.goal = Stretch { from, to: from + span };
        // Keeping up with what is live keeps its right edge.
        self.follows &= place >= 1.0 - AHEAD;
    }

    /// Shows `from..to` with a little around.
    pub fn show(&mut self, from: f64, to: f64) {
        self.follows = false;
        let around = ((to - from) * 0.02).max(SPAN_MIN);
        self.goal = Stretch { from: from - around, to: to + around };
    }

    /// Keeps up with `end` if it is to.
    pub fn follow(&mut self, end: f64) {
        if self.follows {
            let span = self.goal.span();
            let to = (end + span * AHEAD).max(span);
            self.goal = Stretch { from: to - span, to };
            // What is live comes in small pieces; animating them would only lag.
            self.now = Stretch { from: to - self.now.span(), to };
        }
    }

    /// The same stretch `nanos` later.
    #[must_use]
    pub fn moved(&self, nanos: f64) -> Self {
        let by = |one: Stretch| Stretch { from: one.from + nanos, to: one.to + nanos };
        Self { now: by(self.now), goal: by(self.goal), follows: self.follows }
    }

    /// Ends the animation.
    pub fn settle(&mut self) {
        self.now = self.goal;
    }

    /// Moves on by `seconds`; `true` while the goal is not reached.
    pub fn animate(&mut self, seconds: f64) -> bool {
        if self.now == self.goal {
            return false;
        }
        let left = LEFT_A_SECOND.powf(seconds.max(0.0));
        // The span moves by its logarithm, else zooming far would seem to stop.
        let span = (self.now.span().ln() * left + self.goal.span().ln() * (1.0 - left)).exp();
        let part = if (self.now.span() - self.goal.span()).abs() < self.goal.span() * 1e-9 {
            1.0 - left
        } else {
            (self.now.span() - span) / (self.now.span() - self.goal.span())
        };
        let from = self.now.from + (self.goal.from - self.now.from) * part;
        self.now = Stretch { from, to: from + span };
        let off = (self.now.from - self.goal.from).abs() + (self.now.to - self.goal.to).abs();
        if off < self.goal.span() * NEAR {
            self.now = self.goal;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, span: f64) {
        assert!((a - b).abs() <= span * 1e-9, "{a} is not {b}");
    }

    #[test]
    fn zooming_keeps_what_is_under_the_pointer_at_any_moment() {
        let mut view = View::default();
        view.show(1e9, 3e9);
        view.settle();
        let under = view.time(0.3);
        view.zoom(1e-3, 0.3);
        let mut frames = 0;
        while view.animate(0.01) {
            near(view.time(0.3), under, view.span() * 1e3);
            frames += 1;
            assert!(frames < 1000, "it never comes to rest");
        }
        near(view.time(0.3), under, view.span());
        near(view.span(), 2.08e6, 2.08e6);
        assert!(frames > 5, "{frames} frames are no animation");
    }

    #[test]
    fn there_is_no_end_to_zooming_that_a_step_would_meet() {
        let mut view = View::default();
        (0..200).for_each(|_| view.zoom(0.5, 0.5));
        view.settle();
        assert_eq!(view.span(), SPAN_MIN);
        (0..400).for_each(|_| view.zoom(2.0, 0.5));
        view.settle();
        assert!(view.span() >= 2e18, "68 years");
    }

    #[test]
    fn following_ends_when_somebody_moves_and_keeps_the_newest_in_sight() {
        let mut view = View::default();
        view.follow(5e9);
        assert!(view.place(5e9) > 0.9 && view.place(5e9) < 1.0);
        view.zoom(0.1, 0.99);
        assert!(view.follows, "at the right edge it may zoom");
        view.pan(-0.5);
        view.settle();
        let at = view.from();
        view.follow(9e9);
        assert!(!view.follows);
        assert_eq!(view.from(), at);
    }

    #[test]
    fn what_is_asked_for_is_seen_whole() {
        let mut view = View::default();
        view.show(2e9, 2e9);
        view.settle();
        assert!(view.from() < 2e9 && view.to() > 2e9, "an instant has a width");
        view.show(1e6, 4e6);
        view.settle();
        assert!(view.place(1e6) > 0.0 && view.place(4e6) < 1.0);
    }
}
