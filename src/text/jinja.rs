//! Chat templates are Jinja as `transformers` runs it: trimmed blocks, Python's methods, `raise_exception`,
//! `strftime_now`, and a `tojson` that writes what Python's `json.dumps` writes.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

use crate::clock;
use crate::error::{Error, Result};
use crate::limits::{TEMPLATE_BYTES_MAX, TEMPLATE_FUEL};

const NAME: &str = "chat_template";

/// A template, ready to be rendered.
pub(super) struct Jinja {
    environment: Environment<'static>,
}

/// What a template says through `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl Jinja {
    /// Parses a template.
    ///
    /// # Errors
    /// [`Error::Template`] with line and reason when it is none.
    pub(super) fn new(source: &str) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(into_error)?;
        environment.set_syntax(syntax);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(TEMPLATE_FUEL));
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_template_owned(NAME, without_generation_tags(source)).map_err(into_error)?;
        Ok(Self { environment })
    }

    /// Renders the template.
    ///
    /// # Errors
    /// [`Error::Template`]: what it raises, or that it ran too long or wrote too much.
    pub(super) fn render(&self, context: Value) -> Result<String> {
        let template = self.environment.get_template(NAME).map_err(into_error)?;
        let mut output = Bounded(Vec::new());
        template.render_captured_to(context, &mut output).map_err(into_error)?;
        String::from_utf8(output.0).map_err(|_| Error::Template("wrote half a character".into()))
    }
}

/// The message of what was raised, or of the error with its line.
fn into_error(error: minijinja::Error) -> Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = source {
        let wrapped = inner.downcast_ref::<io::Error>().and_then(|e| e.get_ref()).and_then(|e| e.downcast_ref());
        if let Some(Raised(message)) = inner.downcast_ref().or(wrapped) {
            return Error::Template(message.clone());
        }
        source = inner.source();
    }
    match error.kind() {
        ErrorKind::OutOfFuel => Error::Template(format!("stopped after {TEMPLATE_FUEL} instructions")),
        _ => Error::Template(error.to_string()),
    }
}

fn raise_exception(message: String) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(Raised(message)))
}

/// The date as Python's `strftime` writes it, in UTC.
fn strftime_now(format: &str) -> std::result::Result<String, minijinja::Error> {
    let bad = |e: jiff::Error| minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}"));
    let now =
        jiff::Timestamp::from_second(clock::unix_seconds()).map_err(bad)?.to_zoned_datetime(jiff::tz::TimeZone::UTC);
    jiff::fmt::strtime::format(format, &now).map_err(bad)
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=indent)`.
fn to_json(value: &Value, kwargs: Kwargs) -> std::result::Result<Value, minijinja::Error> {
    let bad = |e: serde_json::Error| {
        minijinja::Error::new(ErrorKind::InvalidOperation, "tojson").with_source(io::Error::from(e))
    };
    let indent: Option<usize> = kwargs.get("indent")?;
    let _: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let mut out = Bounded(Vec::new());
    match indent {
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Spaced)).map_err(bad)?,
        Some(width) => {
            let space = " ".repeat(width.min(16));
            let pretty = PrettyFormatter::with_indent(space.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, pretty)).map_err(bad)?;
        }
    }
    Ok(Value::from(String::from_utf8_lossy(&out.0).into_owned()))
}

/// One line, with a space behind each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// `{% generation %}` marks what to train on; rendering knows no such tag, so it becomes a condition that holds.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let inner = tag[2..end].trim_end_matches("%}");
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        match word {
            "generation" => out.push_str(&tag[..end].replacen(word, "if true", 1)),
            "endgeneration" => out.push_str(&tag[..end].replacen(word, "endif", 1)),
            _ => out.push_str(&tag[..end]),
        }
        rest = &tag[end..];
    }
    out.push_str(rest);
    out
}

/// A buffer that refuses to grow past what a template may write.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > TEMPLATE_BYTES_MAX {
            return Err(io::Error::other(Raised(format!("wrote more than {TEMPLATE_BYTES_MAX} bytes"))));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    fn check(source: &str, expected: &str) {
        let list = vec![Value::from(1), Value::from("é<")];
        let value = context! { x => context! { a => list, b => () }, s => " <a> b " };
        match Jinja::new(source).and_then(|jinja| jinja.render(value)) {
            Ok(text) => assert_eq!(text, expected, "{source}"),
            Err(error) => assert_eq!(error.to_string(), expected, "{source}"),
        }
    }

    #[test]
    fn templates_run_as_in_transformers() {
        check("{% if true %}\n  a\n{% endif %}\n", "  a\n");
        check("{{ s.strip().split('> ')[1] }}", "b");
        check("{{ x | tojson }}", r#"{"a": [1, "é<"], "b": null}"#);
        check("{{ [] | tojson(indent=2) }}|{{ [1] | tojson(indent=2) }}", "[]|[\n  1\n]");
        check("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01");
        check("a{%- generation %} b{% endgeneration -%} c", "a bc");
        check("{{ nothing }}{{ bos_token }}", "");
        check("{{ strftime_now('%Y') | length }}", "4");
    }

    #[test]
    fn what_a_template_raises_is_the_message() {
        check("{{ raise_exception('Roles must alternate') }}", "chat template: Roles must alternate");
        let nested =
            "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}";
        check(nested, "chat template: deep");
    }

    #[test]
    fn a_template_that_does_not_end_or_writes_too_much_is_stopped() {
        let stopped = format!("chat template: stopped after {TEMPLATE_FUEL} instructions");
        let long = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        check(long, &stopped);
        let wide = "{% set s = 'x' * 100000 %}{% for a in range(9999) %}{{ s }}{% endfor %}";
        check(wide, &format!("chat template: wrote more than {TEMPLATE_BYTES_MAX} bytes"));
        let json = "{{ ([[1] * 99999] * 99999) | tojson }}";
        check(json, &format!("chat template: wrote more than {TEMPLATE_BYTES_MAX} bytes"));
        let doubled = "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
        check(doubled, &stopped);
    }

    #[test]
    fn broken_templates_are_errors() {
        for source in ["{% if %}", "{{ a.b.c }}", "{{ 1 / 0 }}", "{% generation", "{%", "{{ strftime_now('%!') }}"] {
            let result = Jinja::new(source).and_then(|jinja| jinja.render(context! {}));
            assert!(matches!(result, Err(Error::Template(_))), "{source}: {result:?}");
        }
    }
}
