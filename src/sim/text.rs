//! Ids of a text where there is no tokenizer: as many as a usual one would make, equal beginnings giving equal ids, so that
//! what prompts share is kept.

/// Bytes of English text that usual tokenizers put into one token, about.
pub const BYTES_A_TOKEN: usize = 4;

/// An id below `vocab` for every [`BYTES_A_TOKEN`] bytes, the last ones counting as a whole token. `vocab` is not 0.
#[must_use]
pub fn ids_from_text(text: &str, vocab: u32) -> Vec<u32> {
    assert!(vocab > 0, "a vocabulary of nothing");
    let id = |bytes: &[u8]| bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)) % vocab;
    text.as_bytes().chunks(BYTES_A_TOKEN).map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::ids_from_text;

    #[test]
    fn lengths_and_equal_beginnings_are_kept() {
        let ids = |text| ids_from_text(text, 1000);
        assert_eq!([0, 1, 1, 2].to_vec(), ["", "a", "abcd", "abcde"].map(|text| ids(text).len()));
        assert_eq!(ids("abcdefgh")[..2], ids("abcdefgh and more")[..2]);
        assert_ne!(ids("abcd"), ids("abce"));
        assert!(ids("ÿÿÿÿ~~~~").iter().all(|id| *id < 1000));
    }
}
