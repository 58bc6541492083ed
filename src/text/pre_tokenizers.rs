//! The pre-tokenizers that a GGUF names in `tokenizer.ggml.pre`: how byte-level BPE cuts a text into words.
//!
//! One row a way of cutting. A text goes through the patterns of a row in order; each cuts what the one before left, and
//! both matches and what lies between them become words. Names and expressions are those that llama.cpp's converter writes
//! and those models' own tokenizer.json holds.

use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::error::{Error, Result};

/// A way of cutting, with what llama.cpp assumes about models that use it.
#[derive(Debug)]
pub(super) struct Row {
    names: &'static [&'static str],
    patterns: &'static [&'static str],
    /// A word that is a token as a whole is that token, whatever the merges would make of it.
    pub(super) whole_words: bool,
    /// BOS is added where the file does not say.
    pub(super) add_bos: bool,
}

const fn row(names: &'static [&'static str], patterns: &'static [&'static str]) -> Row {
    Row { names, patterns, whole_words: false, add_bos: false }
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_V3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
/// Letters of the scripts with case, as DeepSeek's first tokenizer lists them; by number where an editor would normalise.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DIGIT: &str = r"\p{N}";
const DIGITS_UP_TO_3: &str = r"\p{N}{1,3}";
const CJK: &str = r"[一-龥ࠀ-一가-퟿]+";
const KANA: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";

const ROWS: &[Row] = &[
    row(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "gigachat",
            "mellum",
            "modern-bert",
            "a.x-4.0",
            "exaone4",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
        ],
        &[GPT2],
    ),
    row(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[DIGIT, GPT2],
    ),
    Row {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        patterns: &[LLAMA3],
        whole_words: true,
        add_bos: true,
    },
    row(&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], &[LLAMA3]),
    row(
        &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2"],
        &[QWEN2],
    ),
    row(&["qwen35"], &[QWEN35]),
    Row { names: &["tekken"], patterns: &[TEKKEN], whole_words: true, add_bos: true },
    row(&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[GPT4O]),
    row(&["deepseek-llm"], &["[\r\n]", DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK, r"\p{N}+"]),
    row(&["deepseek-coder"], &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGIT]),
    row(&["deepseek-v3", "hunyuan-dense", "joyai-llm"], &[DIGITS_UP_TO_3, KANA, DEEPSEEK_V3]),
    row(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    row(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
    row(&["seed-coder"], &[SEED_CODER]),
    row(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    row(&["exaone-moe"], &[EXAONE_MOE]),
    row(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    row(&["viking"], &[BLOOM, DIGIT]),
    row(&["superbpe"], &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
];

/// The row of a pre-tokenizer's name.
///
/// # Errors
/// When no row has that name; `place` is file and key.
pub(super) fn row_from_name(name: &str, place: &str) -> Result<&'static Row> {
    ROWS.iter().find(|row| row.names.contains(&name)).ok_or_else(|| {
        Error::unsupported(
            format_args!("the pre-tokenizer `{name}` ({place})"),
            "a tokenizer.json given by --tokenizer takes its place",
        )
    })
}

impl Row {
    /// Cuts into words, then spells each byte as a character.
    ///
    /// # Errors
    /// When the regex engine refuses a pattern; a test holds that it refuses none.
    pub(super) fn build(&self) -> Result<PreTokenizerWrapper> {
        let mut steps = Vec::with_capacity(self.patterns.len() + 1);
        for &pattern in self.patterns {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|e| Error::Tokenizer(format!("pre-tokenizer {}: {e}", self.names[0])))?;
            steps.push(PreTokenizerWrapper::Split(split));
        }
        steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, false)));
        Ok(PreTokenizerWrapper::Sequence(Sequence::new(steps)))
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let built = row_from_name(name, "test").and_then(Row::build).expect(name);
        let mut pieces = PreTokenizedString::from(text);
        built.pre_tokenize(&mut pieces).expect(name);
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(_, (from, to), _)| text[from..to].to_owned()).collect()
    }

    #[test]
    fn every_row_builds_and_loses_no_byte() {
        let text = "Hi there's 12345 x\u{301}y  ＡＢ、漢字かな!\r\n\t  -- $x=<|a|> 한글 𐐀 1٣ \u{1F680} I'LL end  ";
        for row in ROWS {
            for name in row.names {
                assert_eq!(words(name, text).concat(), text, "{name}");
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ROWS.iter().flat_map(|row| row.names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn rows_cut_as_their_models_do() {
        for (name, text, expected) in [
            ("gpt-2", "a 123  b's\n\nc", vec!["a", " 123", " ", " b", "'s", "\n", "\n", "c"]),
            ("smollm", "a 123  b", vec!["a", " ", "1", "2", "3", " ", " b"]),
            ("llama-bpe", "a 12345 B'S\n\n x", vec!["a", " ", "123", "45", " B", "'S", "\n\n", " x"]),
            ("qwen2", "a 123..\n\nb", vec!["a", " ", "1", "2", "3", "..\n\n", "b"]),
            ("tekken", "fooBar 12/\n", vec!["foo", "Bar", " ", "1", "2", "/\n"]),
            ("gpt-4o", "FooBar'll 1234", vec!["Foo", "Bar'll", " ", "123", "4"]),
            ("falcon", "x==1234", vec!["x", "==", "123", "4"]),
            ("deepseek-llm", "ab 漢字12\n!", vec!["ab", " ", "漢字", "12", "\n", "!"]),
        ] {
            assert_eq!(words(name, text), expected, "{name}");
        }
    }

    #[test]
    fn unknown_name_is_named() {
        let error = row_from_name("martian", "m.gguf, key tokenizer.ggml.pre").expect_err("unknown");
        assert!(error.to_string().contains("`martian`"), "{error}");
    }
}
