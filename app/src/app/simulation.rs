//! Runs in virtual time, a little in every frame: neither the window nor a page stands still meanwhile.

use twostroke::clock::Clock;

use super::{App, From};
use crate::run::Store;
use crate::source::{Play, Scenario, Workload};
use crate::timeline::{Command, View};

/// What a simulation takes of a frame, in nanoseconds.
const NANOS_A_FRAME: u64 = 6_000_000;

/// A simulation that is under way.
pub(super) struct Simulating {
    play: Play,
    /// What is predicted of the run that is shown; `None` when it becomes a run of its own.
    ghost: Option<Store>,
    /// How the last frame left the view. Who moves it then looks at something: it is no longer made to show everything.
    left: Option<View>,
}

impl App {
    /// Begins to play the workload by the simulator, with the settings that are chosen.
    pub fn simulate(&mut self) {
        let scenario = self.scenario();
        let (workload, policy) = (&scenario.workload.name, scenario.settings.policy.name());
        self.begin(format!("simulated: {workload}, {policy}"));
        self.begin_simulation(&scenario, None);
    }

    /// Begins to draw what the simulator says of the same requests with the settings that are chosen, as a ghost over the run that is
    /// shown.
    pub fn predict(&mut self) {
        let Some(workload) = Workload::of_run(self.store(), &self.prompts_of_shown()) else { return };
        self.begin_simulation(&Scenario { workload, ..self.scenario() }, Some(Store::default()));
    }

    /// Whether a simulation is under way.
    #[must_use]
    pub fn is_simulating(&self) -> bool {
        self.simulating.is_some()
    }

    /// Ends the simulation; a run stays as far as it has come, half a prediction goes.
    pub fn stop_simulation(&mut self) {
        self.simulating = None;
    }

    /// Plays on to the end, for those who have nothing to draw meanwhile.
    pub fn simulate_whole(&mut self) {
        while self.simulating.is_some() {
            self.simulate_on();
        }
    }

    fn begin_simulation(&mut self, scenario: &Scenario, ghost: Option<Store>) {
        self.simulating = None;
        match scenario.begin() {
            Ok(play) => self.simulating = Some(Simulating { play, ghost, left: None }),
            Err(error) => self.note = Some(error.to_string()),
        }
    }

    /// A frame's worth of the simulation.
    pub(super) fn simulate_on(&mut self) {
        let Some(simulating) = &mut self.simulating else { return };
        let clock = Clock::start();
        let goes_on = loop {
            match simulating.play.step() {
                Ok(true) if clock.nanos() < NANOS_A_FRAME => {}
                goes_on => break goes_on,
            }
        };
        for event in simulating.play.take() {
            match &mut simulating.ghost {
                Some(ghost) => ghost.take(&event),
                None => self.recorded.take(event),
            }
        }
        let is_ghost = simulating.ghost.is_some();
        if !is_ghost && simulating.left.is_none_or(|left| left == self.recorded.timeline.view) {
            self.recorded.run(Command::Whole);
            self.recorded.timeline.view.settle();
            simulating.left = Some(self.recorded.timeline.view);
        }
        if !matches!(goes_on, Ok(true)) {
            let whole = self.simulating.take();
            match goes_on {
                // Half a prediction would be a wrong one.
                Err(error) => self.note = Some(error.to_string()),
                Ok(_) if is_ghost => self.ghost = whole.and_then(|simulating| simulating.ghost),
                Ok(_) => {}
            }
        }
    }

    /// Another run takes the place of the one that is predicted.
    pub(super) fn forget_prediction(&mut self) {
        self.ghost = None;
        self.simulating.take_if(|simulating| simulating.ghost.is_some());
    }

    /// How far the simulation is, in words.
    pub(super) fn simulation_text(&self) -> Option<String> {
        let simulating = self.simulating.as_ref()?;
        let doing = if simulating.ghost.is_some() { "predicting" } else { "simulating" };
        Some(format!("{doing}, {} s of its time", simulating.play.nanos() / 1_000_000_000))
    }

    /// Whether what comes is a run that is shown.
    pub(super) fn is_simulating_run(&self) -> bool {
        self.from == From::Recorded && self.simulating.as_ref().is_some_and(|simulating| simulating.ghost.is_none())
    }
}
