//! Conversations: what was said, what is being answered, and the panel that shows it. Several may be answered at once; that is what makes
//! batching visible.
//!
//! ```text
//! conversation   messages, the answers to them, what can be done with them
//! panel          all of it on the screen
//! ```
//!
//! It knows questions and answers by their ids. Who answers, it does not know; figures come from the run.

mod conversation;
mod panel;

pub use conversation::{Answer, Conversation, Parameters, Progress, Turn};
pub use panel::Wish;

use twostroke::engine::sampling::SamplingParams;

use crate::host::{Ask, AskId, Finish, Prompt};
use crate::run::Store;

/// All conversations.
#[derive(Debug)]
pub struct Chats {
    /// At least one.
    list: Vec<Conversation>,
    current: usize,
    /// How answers are made.
    pub parameters: Parameters,
    next_id: AskId,
    /// Conversations begun, for their names.
    begun: usize,
    caches: panel::Caches,
}

impl Default for Chats {
    fn default() -> Self {
        let mut chats = Self {
            list: Vec::new(),
            current: 0,
            parameters: Parameters::default(),
            next_id: 0,
            begun: 0,
            caches: panel::Caches::default(),
        };
        chats.begin();
        chats
    }
}

impl Chats {
    /// All conversations.
    #[must_use]
    pub fn list(&self) -> &[Conversation] {
        &self.list
    }

    /// The one that is shown.
    #[must_use]
    pub fn current(&self) -> &Conversation {
        &self.list[self.current]
    }

    /// Begins another one, and shows it.
    pub fn begin(&mut self) {
        self.begun += 1;
        self.list.push(Conversation::new(format!("Chat {}", self.begun)));
        self.current = self.list.len() - 1;
    }

    /// Forgets the conversation that is shown; the answers that must be stopped.
    pub fn forget(&mut self) -> Option<AskId> {
        let gone = self.list.remove(self.current);
        if self.list.is_empty() {
            self.begin();
        }
        self.current = self.current.min(self.list.len() - 1);
        gone.answering()
    }

    /// What the conversation that is shown asks, with `text` as its next message; `None` for no text, or while it is answered.
    pub fn send(&mut self, text: &str) -> Option<Ask> {
        let text = text.trim();
        let conversation = &mut self.list[self.current];
        if text.is_empty() || conversation.answering().is_some() {
            return None;
        }
        conversation.say(text.to_owned());
        Some(self.ask())
    }

    /// What goes on with `ids` in a new conversation: the likeliest `tokens` tokens, whatever ends there are.
    pub fn go_on(&mut self, ids: Vec<u32>, tokens: u32) -> Ask {
        self.begin();
        let text = format!("({} ids)", ids.len());
        self.list[self.current].say(text);
        let mut ask = self.ask();
        (ask.prompt, ask.max_tokens, ask.ignore_eos) = (Prompt::Ids(ids), Some(tokens), true);
        ask.sampling = SamplingParams::default();
        ask
    }

    /// Answers that are being made.
    pub fn under_way(&self) -> impl Iterator<Item = AskId> {
        self.list.iter().filter_map(Conversation::answering)
    }

    /// Asks once more for the answer at `turn` of the conversation that is shown: what came after it is forgotten.
    pub fn again(&mut self, turn: usize) -> Option<Ask> {
        self.list[self.current].rewind(turn).then(|| self.ask())
    }

    /// Takes the message at `turn` back into the field, to be said differently: what came after it is forgotten.
    pub fn edit(&mut self, turn: usize) {
        self.list[self.current].take_back(turn);
    }

    fn ask(&mut self) -> Ask {
        let id = self.next_id;
        self.next_id += 1;
        let conversation = &mut self.list[self.current];
        let prompt = conversation.prompt(&self.parameters);
        conversation.await_answer(id);
        self.parameters.ask(id, prompt)
    }

    /// An answer has its place in the queue.
    pub fn began(&mut self, id: AskId, request: u64, prompt_tokens: usize) {
        self.change(id, |answer| {
            answer.request = Some(request);
            answer.prompt_tokens = u32::try_from(prompt_tokens).unwrap_or(u32::MAX);
        });
    }

    /// More of an answer, and the token it came with, if any did.
    pub fn text(&mut self, id: AskId, text: &str, token: Option<u32>) {
        self.change(id, |answer| {
            answer.text.push_str(text);
            answer.ids.extend(token);
            answer.progress = Progress::Streaming;
        });
    }

    /// An answer's end, with its figures as the run has them.
    pub fn ended(&mut self, id: AskId, finish: Finish, store: &Store) {
        self.change(id, |answer| {
            let request = answer.request.and_then(|request| store.request(request));
            answer.figures = request.map(|request| request.figures(store));
            answer.progress = Progress::Done(finish);
        });
    }

    fn change(&mut self, id: AskId, change: impl FnOnce(&mut Answer)) {
        // It may have been forgotten meanwhile.
        if let Some(answer) = self.list.iter_mut().find_map(|one| one.answer_mut(id)) {
            change(answer);
        }
    }

    /// The run of these answers is no longer shown: their rows cannot be found there.
    pub fn forget_rows(&mut self) {
        self.list.iter_mut().for_each(Conversation::forget_rows);
    }

    /// Answers that are being made.
    #[must_use]
    pub fn answering(&self) -> usize {
        self.under_way().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(ask: &Ask) -> Vec<String> {
        match &ask.prompt {
            Prompt::Messages(messages) => messages.iter().map(|message| message.role.clone()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_conversation_grows_by_question_and_answer() {
        let mut chats = Chats::default();
        assert!(chats.send("  ").is_none(), "nothing is no question");
        let ask = chats.send(" hello ").expect("asked");
        assert_eq!(roles(&ask), ["user"]);
        assert!(chats.send("more").is_none(), "one at a time");
        chats.began(ask.id, 7, 12);
        chats.text(ask.id, "hi", Some(1));
        chats.text(ask.id, " there", Some(1));
        chats.ended(ask.id, Finish::Stop, &Store::default());
        let answer = chats.current().turns()[1].answer().expect("an answer");
        assert_eq!((&*answer.text, answer.ids.len(), answer.prompt_tokens), ("hi there", 2, 12));
        let ask = chats.send("and now?").expect("asked");
        assert_eq!(roles(&ask), ["user", "assistant", "user"]);
    }

    #[test]
    fn an_answer_is_asked_for_again_and_a_message_taken_back() {
        let mut chats = Chats::default();
        chats.parameters.system = "be brief".into();
        for text in ["one", "two"] {
            let ask = chats.send(text).expect("asked");
            chats.text(ask.id, "ok", Some(1));
            chats.ended(ask.id, Finish::Stop, &Store::default());
        }
        let ask = chats.again(1).expect("there is an answer");
        assert_eq!(roles(&ask), ["system", "user"], "what came later is forgotten");
        assert!(chats.again(1).is_none(), "it is being answered");
        chats.ended(ask.id, Finish::Stopped, &Store::default());
        chats.edit(0);
        assert_eq!(chats.current().draft, "one");
        assert!(chats.current().turns().is_empty());
    }

    #[test]
    fn conversations_are_answered_side_by_side_and_one_forgotten_is_stopped() {
        let mut chats = Chats::default();
        let first = chats.send("one").expect("asked");
        chats.begin();
        let second = chats.send("two").expect("asked");
        assert_eq!(chats.answering(), 2);
        chats.text(first.id, "a", Some(1));
        chats.text(second.id, "b", Some(1));
        assert_eq!(chats.current().turns()[1].answer().expect("one").text, "b");
        assert_eq!(chats.forget(), Some(second.id));
        chats.text(second.id, "late", Some(1));
        assert_eq!(chats.current().turns()[1].answer().expect("one").text, "a");
        chats.ended(first.id, Finish::Length, &Store::default());
        assert_eq!((chats.forget(), chats.list().len()), (None, 1), "there is always one");
    }
}
