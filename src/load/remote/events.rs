//! Server-sent events out of bytes as they come, by the WHATWG's rules: lines end with LF, CR or both, `data` lines of an event
//! are joined, comments and other fields are passed over. What is unfinished is bounded.

use crate::limits::EVENT_BYTES_MAX;

/// A reader of one stream.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a CR: an LF right behind it ends nothing.
    after_cr: bool,
    is_begun: bool,
}

impl Events {
    /// Takes bytes; gives the data of each event that they finish.
    ///
    /// # Errors
    /// What `event` says, and an event above [`EVENT_BYTES_MAX`].
    pub fn feed(&mut self, bytes: &[u8], event: &mut dyn FnMut(&str) -> Result<(), String>) -> Result<(), String> {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                return self.grow(rest);
            };
            self.grow(&rest[..end])?;
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.end_of_line(event)?;
        }
        Ok(())
    }

    fn grow(&mut self, part: &[u8]) -> Result<(), String> {
        if self.line.len() + self.data.len() + part.len() > EVENT_BYTES_MAX {
            return Err(format!("an event of more than {EVENT_BYTES_MAX} bytes"));
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_of_line(&mut self, event: &mut dyn FnMut(&str) -> Result<(), String>) -> Result<(), String> {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let mut line = line.as_slice();
        if is_first {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                let data = std::mem::take(&mut self.data);
                return event(&String::from_utf8_lossy(&data));
            }
            return Ok(());
        }
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        if name == b"data" {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(parts: &[&[u8]]) -> Result<Vec<String>, String> {
        let (mut events, mut got) = (Events::default(), Vec::new());
        for part in parts {
            events.feed(part, &mut |data| {
                got.push(data.to_owned());
                Ok(())
            })?;
        }
        Ok(got)
    }

    #[test]
    fn events_are_found_by_the_standards_rules() {
        for (stream, expected) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data:a\r\n\r\ndata:  b\r\n\r\n", vec!["a", " b"]),
            ("data: a\rdata: b\r\r", vec!["a\nb"]),
            (": ping\n\nevent: x\nid: 3\ndata: a\nretry: 5\n\n", vec!["a"]),
            ("data\n\n", vec![""]),
            ("\u{feff}data: a\n\n", vec!["a"]),
            ("data: unfinished\n", vec![]),
            ("data: ü\n\n\n\ndata: \n\n", vec!["ü", ""]),
        ] {
            assert_eq!(
                all(&[stream.as_bytes()]).as_deref(),
                Ok(&expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]),
                "{stream:?}"
            );
        }
    }

    #[test]
    fn an_event_without_end_is_refused_and_kept_small() {
        let part = vec![b'x'; EVENT_BYTES_MAX / 2 + 1];
        assert!(all(&[b"data: ", &part, &part]).is_err());
        let line = [b"data: ".as_slice(), &part, b"\n"].concat();
        assert!(all(&[&line, &line]).is_err());
        assert_eq!(all(&[&line, b"\n", &line, b"\n"]).map(|got| got.len()), Ok(2));
    }

    #[test]
    fn what_the_caller_says_ends_it() {
        let told = Events::default().feed(b"data: a\n\ndata: b\n\n", &mut |data| Err(data.to_owned()));
        assert_eq!(told, Err("a".to_owned()));
    }

    proptest! {
        #[test]
        fn where_the_network_cuts_changes_nothing(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b'd'), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(all(&parts), all(&[&bytes]));
        }
    }
}
