//! What can be done in the timeline: one list for keys, menus and tests. The hands are Perfetto's.

use egui::{Key, Modifiers};

/// Something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    /// Zoom in at the pointer.
    ZoomIn,
    /// Zoom out at the pointer.
    ZoomOut,
    /// Move left.
    Left,
    /// Move right.
    Right,
    /// Fit what is selected.
    Focus,
    /// Make the selected request's life the range.
    Range,
    /// Fit everything.
    Whole,
    /// The next segment of the selected request.
    Next,
    /// The one before.
    Previous,
    /// Select the request above.
    Up,
    /// Select the request below.
    Down,
    /// Keep up with what is live, or stand still.
    Follow,
    /// Look for a request.
    Search,
    /// Show these keys.
    Help,
    /// Select nothing.
    Clear,
}

/// Every command, with its key and what it is called.
pub const COMMANDS: [(Command, Key, &str); 15] = [
    (Command::ZoomIn, Key::W, "Zoom in"),
    (Command::ZoomOut, Key::S, "Zoom out"),
    (Command::Left, Key::A, "Move left"),
    (Command::Right, Key::D, "Move right"),
    (Command::Focus, Key::F, "Fit the selected request or range"),
    (Command::Range, Key::R, "Select the time of the selected request"),
    (Command::Whole, Key::Num0, "Fit everything"),
    (Command::Next, Key::Period, "Next segment"),
    (Command::Previous, Key::Comma, "Previous segment"),
    (Command::Up, Key::ArrowUp, "Request above"),
    (Command::Down, Key::ArrowDown, "Request below"),
    (Command::Follow, Key::Space, "Follow what is live, or freeze"),
    (Command::Search, Key::Slash, "Find a request"),
    (Command::Help, Key::Questionmark, "Show the keys"),
    (Command::Clear, Key::Escape, "Select nothing"),
];

/// The commands whose keys were pressed, unless a text field has them.
pub(super) fn pressed(ui: &egui::Ui) -> Vec<Command> {
    if ui.ctx().egui_wants_keyboard_input() {
        return Vec::new();
    }
    ui.input_mut(|input| {
        let is_pressed = |(command, key, _): &(Command, Key, &str)| {
            let count = input.count_and_consume_key(Modifiers::NONE, *key);
            std::iter::repeat_n(*command, count)
        };
        COMMANDS.iter().flat_map(is_pressed).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_one_key_and_a_name() {
        let mut keys: Vec<_> = COMMANDS.iter().map(|(_, key, _)| key.name()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), COMMANDS.len());
        assert!(COMMANDS.iter().all(|(_, _, name)| !name.is_empty()));
    }
}
