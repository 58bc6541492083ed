//! Flags and commands of the contract that this build does not have yet: absent from `--help`, refused with exit status 2
//! and a sentence that says so, rather than with clap's guess at a typing error.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory};

use super::args::CommandLine;
use crate::error::Error;

/// The error for something that comes later.
pub(super) fn error(what: &str) -> Error {
    Error::Usage(format!("{what} is not in this build yet: it comes with a later version"))
}

/// The command of a later version that `help COMMAND` asks for. `arguments` begin with the program's name.
pub(super) fn help_of(arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().skip(1).filter_map(|arg| arg.to_str()).filter(|arg| !arg.starts_with('-'));
    let name = words.next().filter(|&first| first == "help").and_then(|_| words.next())?;
    is_hidden_command(&CommandLine::command(), name).then(|| name.to_owned())
}

/// Takes tips out of clap's error that name what `--help` doesn't.
pub(super) fn without_hidden_tips(mut error: clap::Error) -> clap::Error {
    let command = CommandLine::command();
    let is_hidden = |tip: &str| {
        let is_arg = |command: &Command| {
            let mut args = command.get_arguments();
            args.any(|arg| arg.is_hide_set() && arg.get_long().is_some_and(|long| tip.strip_prefix("--") == Some(long)))
        };
        is_hidden_command(&command, tip) || command.get_subcommands().any(is_arg)
    };
    for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand] {
        let left = match error.get(kind) {
            Some(ContextValue::String(tip)) if is_hidden(tip) => ContextValue::None,
            Some(ContextValue::Strings(tips)) if tips.iter().any(|tip| is_hidden(tip)) => {
                let left: Vec<String> = tips.iter().filter(|tip| !is_hidden(tip)).cloned().collect();
                if left.is_empty() { ContextValue::None } else { ContextValue::Strings(left) }
            }
            _ => continue,
        };
        error.insert(kind, left);
    }
    error
}

fn is_hidden_command(command: &Command, name: &str) -> bool {
    command.get_subcommands().any(|command| command.is_hide_set() && command.get_name() == name)
}
