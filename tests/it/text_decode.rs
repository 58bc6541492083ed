//! Ids to text, piece by piece.

use proptest::prelude::*;
use twostroke::text::decode::DeltaDecoder;
use twostroke::text::tokenizer::Tokenizer;

use crate::text_vocab::{SpmFile, data, smollm2};

/// Deltas of an answer after `before`; none holds half a character.
fn stream(tokenizer: &Tokenizer, before: &[u32], ids: &[u32]) -> Vec<String> {
    let mut decoder = DeltaDecoder::new(tokenizer, before);
    let mut deltas: Vec<String> = ids.iter().map(|id| decoder.push(tokenizer, *id).expect("a known id")).collect();
    deltas.push(decoder.finish());
    deltas
}

#[test]
fn f04_deltas_are_whole_characters_and_join_to_the_full_text() {
    let text = "a\u{1F680}日本 é\u{1F469}\u{200D}\u{1F4BB} end";
    for tokenizer in [smollm2(), data::<SpmFile>("spm_prefix.json").tokenizer()] {
        let ids = tokenizer.encode_plain(text).expect("encodes");
        let deltas = stream(&tokenizer, &[], &ids);
        assert!(deltas.iter().any(String::is_empty), "a character of several tokens is held back");
        assert!(deltas.iter().all(|delta| !delta.contains('\u{FFFD}')), "{deltas:?}");
        assert_eq!(deltas.concat(), text);
        assert_eq!(tokenizer.decode(&ids).expect("decodes"), text);
    }
}

#[test]
fn f28_only_the_one_synthetic_space_is_dropped() {
    let tokenizer = data::<SpmFile>("spm_prefix.json").tokenizer();
    for text in ["a", " a", "  a", "   a", "a  b", " ", "", "    x  "] {
        let ids = tokenizer.encode_plain(text).expect("encodes");
        assert_eq!(tokenizer.decode(&ids).expect("decodes"), text);
        assert_eq!(stream(&tokenizer, &[], &ids).concat(), text, "streamed");
        assert_eq!(stream(&tokenizer, &[1, 3], &ids).concat(), text, "control tokens before it are no text");
        let after = stream(&tokenizer, &[1, ids.first().copied().unwrap_or(300)], &ids).concat();
        assert_eq!(
            after,
            if text.is_empty() { String::new() } else { format!(" {text}") },
            "behind text the space is real"
        );
    }
}

#[test]
fn a_character_that_never_ends_is_one_replacement() {
    let tokenizer = smollm2();
    let rocket = tokenizer.encode_plain("\u{1F680}").expect("encodes");
    let half = &rocket[..rocket.len() - 1];
    assert_eq!(stream(&tokenizer, &[], half).concat(), "\u{FFFD}");
    let mut mixed = half.to_vec();
    mixed.extend(tokenizer.encode_plain("x").expect("encodes"));
    assert_eq!(stream(&tokenizer, &[], &mixed).concat(), "\u{FFFD}x");
    assert_eq!(tokenizer.decode(&mixed).expect("decodes"), "\u{FFFD}x");
}

#[test]
fn control_tokens_inside_a_character_do_not_tear_it() {
    let tokenizer = smollm2();
    let mut ids = tokenizer.encode_plain("\u{1F680}").expect("encodes");
    ids.insert(1, 2);
    assert_eq!(stream(&tokenizer, &[], &ids).concat(), "\u{1F680}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_text_survives_encoding(text in "\\PC{0,40}|[ \\n\\t<|>a-e0-9▁é\u{FDD0}\u{F0000}]{0,40}") {
        for tokenizer in TOKENIZERS.iter() {
            let ids = tokenizer.encode_plain(&text).expect("encodes");
            // SentencePiece reads its mark as a space.
            let expected = if tokenizer.vocab_size() == 600 { text.replace('▁', " ") } else { text.clone() };
            prop_assert_eq!(tokenizer.decode(&ids).expect("decodes"), expected);
        }
    }

    #[test]
    fn deltas_join_to_the_full_text_for_any_ids(ids in prop::collection::vec(0_u32..600, 0..60)) {
        for tokenizer in TOKENIZERS.iter() {
            let deltas = stream(tokenizer, &[], &ids);
            prop_assert_eq!(deltas.concat(), tokenizer.decode(&ids).expect("decodes"));
        }
    }
}

static TOKENIZERS: std::sync::LazyLock<Vec<Tokenizer>> = std::sync::LazyLock::new(|| {
    vec![smollm2(), data::<SpmFile>("spm_prefix.json").tokenizer(), data::<SpmFile>("spm_plain.json").tokenizer()]
});
