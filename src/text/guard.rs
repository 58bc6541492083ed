//! Keeps the text of messages from becoming control tokens on its way through a chat template.
//!
//! A template is free to trim, slice, search and join texts, so what a message wrote cannot be told from what the template
//! wrote by position. Two renderings tell it instead:
//! - *broken*: control tokens that a message spells get a character inside that no text holds. The template sees all else
//!   as it is, so its logic and thus the prompt are the plain rendering's.
//! - *veiled*: every character of a message with which some control token begins is replaced. No control token can begin
//!   in a message then, whatever the template joins; but a template that searches for markup will not find it.
//!
//! When both hold the same control tokens in the same order, all of them are the template's, and the broken one is taken;
//! else the veiled one is. Either way the replaced characters are put back after the cut, where they are plain text.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::chat::Message;
use super::pipeline::Section;
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};

/// Roles that templates know; any other is broken up, so that a template that writes `<|` + role + `|>` makes no token of it.
const ROLES: &[&str] = &[
    "system",
    "developer",
    "user",
    "assistant",
    "model",
    "tool",
    "function",
    "ipython",
    "environment",
    "context",
    "documents",
    "observation",
    "critic",
    "human",
    "bot",
    "thought",
];

/// Stand-ins for the characters of one conversation.
pub(super) struct Guard<'a> {
    tokenizer: &'a Tokenizer,
    /// Put inside control tokens that a message spells.
    breaker: char,
    /// What stands for each character with which a control token begins.
    veils: BTreeMap<char, char>,
    names: HashSet<&'a str>,
    /// Lengths of the names in bytes.
    lengths: BTreeSet<usize>,
}

impl<'a> Guard<'a> {
    /// Chooses characters that are in no message and not in the template.
    ///
    /// # Errors
    /// When the messages hold nearly every private character there is.
    pub(super) fn new(tokenizer: &'a Tokenizer, messages: &[Message], template: &str) -> Result<Self> {
        let texts = messages.iter().flat_map(|m| [m.role.as_str(), m.text()]).chain([template]);
        let taken: HashSet<char> = texts.flat_map(str::chars).filter(|c| is_private(*c)).collect();
        let mut free = (0xF_0000..=0xF_FFFD).filter_map(char::from_u32).filter(|c| !taken.contains(c));
        let mut next = || free.next().ok_or_else(|| Error::Request("the messages hold every private character".into()));
        let breaker = next()?;
        let mut veils = BTreeMap::new();
        for first in tokenizer.control().iter().filter_map(|(name, _)| name.chars().next()) {
            if let Entry::Vacant(entry) = veils.entry(first) {
                entry.insert(next()?);
            }
        }
        let names: HashSet<&str> = tokenizer.control().iter().map(|(name, _)| name.as_str()).collect();
        let lengths = names.iter().map(|name| name.len()).collect();
        Ok(Self { tokenizer, breaker, veils, names, lengths })
    }

    /// Ids of the conversation; `render` runs the template over messages.
    ///
    /// # Errors
    /// The template's and the tokenizer's.
    pub(super) fn encode(
        &self,
        messages: &[Message],
        render: impl Fn(&[Message]) -> Result<String>,
    ) -> Result<Vec<u32>> {
        let broken_text = render(&self.map(messages, |text| self.break_tokens(text)))?;
        let mut sections = self.tokenizer.sections(&broken_text)?;
        let veiled_text;
        if messages.iter().any(|m| self.holds_first(m.text()) || self.holds_first(&m.role)) {
            veiled_text = render(&self.map(messages, |text| self.veil(text)))?;
            let veiled = self.tokenizer.sections(&veiled_text)?;
            if controls(&veiled).ne(controls(&sections)) {
                sections = veiled;
            }
        }
        let lifted: Vec<Lifted> = sections.iter().map(|section| self.lift(section)).collect();
        let sections: Vec<Section<'_>> = lifted.iter().map(Lifted::section).collect();
        self.tokenizer.encode_sections(&sections)
    }

    fn map(&self, messages: &[Message], change: impl Fn(&str) -> String) -> Vec<Message> {
        let role = |role: &str| {
            let mut changed = change(role);
            let first = changed.chars().next().map_or(0, char::len_utf8);
            if !ROLES.contains(&role) {
                changed.insert(first, self.breaker);
            }
            changed
        };
        messages.iter().map(|m| Message::new(role(&m.role), change(m.text()))).collect()
    }

    fn holds_first(&self, text: &str) -> bool {
        text.chars().any(|c| self.veils.contains_key(&c))
    }

    fn veil(&self, text: &str) -> String {
        text.chars().map(|c| self.veils.get(&c).copied().unwrap_or(c)).collect()
    }

    /// The text with the breaker behind the first character of each control token in it.
    fn break_tokens(&self, text: &str) -> String {
        let mut broken = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            broken.push(c);
            let is_name = |len: &usize| text.get(at..at + len).is_some_and(|span| self.names.contains(span));
            if self.veils.contains_key(&c) && self.lengths.iter().any(is_name) {
                broken.push(self.breaker);
            }
        }
        broken
    }

    fn lift(&self, section: &Section<'_>) -> Lifted {
        match section {
            Section::Control(id) => Lifted::Control(*id),
            Section::Text(text) => {
                let unveil = |c| self.veils.iter().find(|(_, veil)| **veil == c).map_or(c, |(first, _)| *first);
                Lifted::Text(text.chars().filter(|c| *c != self.breaker).map(unveil).collect())
            }
        }
    }
}

/// A section whose replaced characters are back.
enum Lifted {
    Text(String),
    Control(u32),
}

impl Lifted {
    fn section(&self) -> Section<'_> {
        match self {
            Self::Text(text) => Section::Text(text),
            Self::Control(id) => Section::Control(*id),
        }
    }
}

fn controls(sections: &[Section<'_>]) -> impl Iterator<Item = u32> {
    sections.iter().filter_map(|section| match section {
        Section::Control(id) => Some(*id),
        Section::Text(_) => None,
    })
}

fn is_private(c: char) -> bool {
    ('\u{F0000}'..='\u{FFFFD}').contains(&c)
}
