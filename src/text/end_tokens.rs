//! Control tokens that are known by name, for files that do not say what they are for.

/// End an answer in whatever model they occur; files often name only one of them.
const ENDS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
];

/// End an answer when the file says that they are control tokens; elsewhere they are markup.
const ENDS_IF_CONTROL: &[&str] = &["</s>", "<eos>", "[EOS]"];

/// Frame turns: control tokens even where a file calls them ordinary.
const FRAMES: &[&str] = &[
    "<|im_start|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<start_of_turn>",
    "<|turn>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<｜begin▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
];

/// Whether a token of this name is a control token whatever the file calls it.
pub(super) fn is_control_name(name: &str) -> bool {
    ENDS.contains(&name) || FRAMES.contains(&name)
}

/// Whether a control token of this name ends an answer. `has` tells which names the vocabulary holds.
pub(super) fn is_end_name(name: &str, has: impl Fn(&str) -> bool) -> bool {
    // Harmony: `<|end|>` only ends a message there, after which the model goes on by itself.
    let channels = (has("<|return|>") && has("<|call|>")) || (has("<|calls|>") && has("<|flush|>"));
    (ENDS.contains(&name) || ENDS_IF_CONTROL.contains(&name)) && !(name == "<|end|>" && channels)
}

/// Every name that may end an answer.
pub(super) fn end_names() -> impl Iterator<Item = &'static str> {
    ENDS.iter().chain(ENDS_IF_CONTROL).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_message_ends_an_answer_except_where_channels_follow() {
        assert!(is_end_name("<|end|>", |_| false));
        assert!(!is_end_name("<|end|>", |name| name == "<|return|>" || name == "<|call|>"));
        assert!(is_end_name("<|return|>", |_| true));
        assert!(!is_end_name("<|im_start|>", |_| true));
    }
}
