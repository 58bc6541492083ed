//! What goes on, in words for screen readers (a page's canvas has nothing to read out) and as data for tests.

use serde_json::{Value, json};
use twostroke::engine::event::RowKind;

use super::App;
use crate::chat::{Progress, Turn};
use crate::run::Request;
use crate::timeline::short;

impl App {
    /// What goes on: the engine, answers, what is selected.
    #[must_use]
    pub fn status(&self) -> String {
        let mut parts = Vec::new();
        if let Some(trouble) = self.engine.trouble.as_ref().or(self.note.as_ref()) {
            parts.push(trouble.clone());
        }
        match (self.engine.busy_text(), &self.engine.facts) {
            (Some(busy), _) => parts.push(busy),
            (None, Some(facts)) => parts.push(format!("{} is open on {}", facts.model, facts.adapter)),
            (None, None) => parts.push("no model is open".to_owned()),
        }
        match self.chats.answering() {
            0 => {}
            1 => parts.push("1 answer under way".to_owned()),
            count => parts.push(format!("{count} answers under way")),
        }
        // An answer is read out when it is whole.
        let last = self.chats.current().turns().last().and_then(Turn::answer);
        if let Some(answer) = last.filter(|answer| matches!(answer.progress, Progress::Done(_))) {
            parts.push(format!("answer: {}", answer.text));
        }
        let shown = self.shown_ref();
        parts.push(format!("{}: {} requests", shown.title, shown.store.requests().len()));
        if let Some(request) = shown.timeline.selected.and_then(|id| shown.store.request(id)) {
            let figures = request.figures(&shown.store);
            let mut text = format!("selected: request {}, {}", request.id, request.state.word());
            for (name, ms) in [("TTFT", figures.ttft), ("TPOT", figures.tpot)] {
                text.extend(ms.map(|ms| format!(", {name} {}", short(ms))));
            }
            parts.push(text);
        }
        parts.join(". ")
    }

    /// What goes on, as data: the engine, every answer, every row of the run that is shown.
    #[must_use]
    pub fn state(&self) -> Value {
        let answers: Vec<Value> = self.chats.list().iter().flat_map(|chat| {
            chat.turns().iter().filter_map(Turn::answer).map(|answer| {
                let done = match &answer.progress {
                    Progress::Done(finish) => Some(format!("{finish:?}")),
                    _ => None,
                };
                json!({"chat": chat.name, "request": answer.request, "ids": answer.ids, "text": answer.text, "done": done})
            })
        }).collect();
        let store = self.store();
        let rows: Vec<Value> = store.requests().iter().map(row).collect();
        let mixed = store.steps().iter().filter(|step| step.is_mixed()).count();
        let shared = store.steps().iter().filter(|step| step.decode_rows > 1).count();
        json!({
            "facts": self.engine.facts.as_ref().map(|facts| json!({"model": facts.model, "adapter": facts.adapter, "tier": facts.tier})),
            "busy": self.engine.busy_text(),
            "trouble": self.engine.trouble,
            "note": self.note,
            "title": self.shown_ref().title,
            "answers": answers,
            "rows": rows,
            "steps": store.steps().len(),
            "steps_mixed": mixed,
            "steps_shared": shared,
        })
    }
}

fn row(request: &Request) -> Value {
    let of = |kind: RowKind| request.rows().iter().filter(|row| row.kind() == kind).count();
    json!({"id": request.id, "state": request.state.word(), "chunks": of(RowKind::Prefill), "ticks": of(RowKind::Decode)})
}
