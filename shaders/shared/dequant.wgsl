{# Packed weight blocks (src/kernels/layout.rs) as floats.

   code(format, width, words, high, k): weight k (0..31) of a block before scaling, as f32 (width 1) or as vec4<f32> over four columns
   (width 4). `words` and `high` are the prefixes of the names that hold the block's words and high bits; u32 or vec4<u32>.
   scale(format, both, bits, part), minimum(...): what the codes of a part (a half of the block, where parts are 16 weights) are
   multiplied with, and what is added then; `both` is (d, m) or (d, dmin), `bits` holds the block's 16 bits in its low half.
   For float formats the code is the weight.
   bytes(format, word, high, q): codes 4q..4q+3 of a block as the bytes of a word, code_zero(format) above their value; `word` and
   `high` name the words that hold their bits. Formats with scales only.
   Adding a format: a branch here, one in kernels/layout.rs, one in format/block.rs, its number in format/gguf/types.rs. #}
{% macro splat(width, value) %}{% if width == 1 %}{{ value }}u{% else %}vec4<u32>({{ value }}u){% endif %}{% endmacro %}
{# `bits` bits of code k: byte b of a word holds codes b, 4 + b, ... from its lowest bits on. #}
{% macro bits_of(width, words, bits, k) %}
{%- set a_word = 32 // bits %}
{{- "((" }}{{ words }}{{ k // a_word }} >> {{ splat(width, 8 * (k % 4) + bits * (k % a_word // 4)) }}) & {{ splat(width, 2 ** bits - 1) }})
{%- endmacro %}
{% macro above(width, value, bits) %}({{ value }} << {{ splat(width, bits) }}){% endmacro %}
{% macro one_bit(width, high, k) %}(({{ high }}0 >> {{ splat(width, k) }}) & {{ splat(width, 1) }}){% endmacro %}
{% macro code(format, width, words, high, k) %}
{% set f = "f32" if width == 1 else "vec4<f32>" %}
{% set i = "i32" if width == 1 else "vec4<i32>" %}
{% if format == "q4_0" %}{{ f }}({{ i }}({{ bits_of(width, words, 4, k) }}) - {{ i }}(8))
{%- elif format in ["q4_1", "q4_k"] %}{{ f }}({{ i }}({{ bits_of(width, words, 4, k) }}))
{%- elif format == "iq4_nl" %}iq4_nl{{ width }}({{ bits_of(width, words, 4, k) }})
{%- elif format == "q5_0" %}{{ f }}({{ i }}({{ bits_of(width, words, 4, k) }} | {{ above(width, one_bit(width, high, k), 4) }}) - {{ i }}(16))
{%- elif format in ["q5_1", "q5_k"] %}{{ f }}({{ i }}({{ bits_of(width, words, 4, k) }} | {{ above(width, one_bit(width, high, k), 4) }}))
{%- elif format == "q6_k" %}{{ f }}({{ i }}({{ bits_of(width, words, 4, k) }} | {{ above(width, bits_of(width, high, 2, k), 4) }}) - {{ i }}(32))
{%- elif format == "q2_k" %}{{ f }}({{ i }}({{ bits_of(width, words, 2, k) }}))
{%- elif format == "q3_k" %}{{ f }}({{ i }}({{ bits_of(width, words, 2, k) }} | {{ above(width, one_bit(width, high, k), 2) }}) - {{ i }}(4))
{%- elif format == "q8_0" %}{{ f }}(extractBits(bitcast<{{ i }}>({{ words }}{{ k // 4 }}), {{ 8 * (k % 4) }}u, 8u))
{%- elif format == "f16" %}
{% if width == 1 %}unpack2x16float({{ words }}{{ k // 2 }}).{{ "xy"[k % 2] }}
{%- else %}vec4<f32>({% for c in "xyzw" %}unpack2x16float({{ words }}{{ k // 2 }}.{{ c }}).{{ "xy"[k % 2] }}{{ "" if loop.last else ", " }}{% endfor %})
{%- endif %}
{% elif format == "bf16" %}bitcast<{{ f }}>({{ words }}{{ k // 2 }} {{ "<< " ~ splat(width, 16) if k % 2 == 0 else "& " ~ splat(width, 4294901760) }})
{%- else %}bitcast<{{ f }}>({{ words }}{{ k }})
{%- endif %}
{% endmacro %}
{# `bits` bits of codes 4q..4q+3, each in its byte. #}
{% macro quad_bits(word, bits, q) %}(({{ word }} >> {{ bits * (q % (8 // bits)) }}u) & {{ (2 ** bits - 1) * 16843009 }}u){% endmacro %}
{# One bit each: bit i of a nibble times 2^0 + 2^7 + 2^14 + 2^21 stands at bit 8i, among others. #}
{% macro quad_one_bit(word, q, up) %}((((({{ word }} >> {{ 4 * q }}u) & 15u) * 2113665u) & 16843009u) << {{ up }}u){% endmacro %}
{% macro bytes(format, word, high, q) %}
{% if format in ["q4_0", "q4_1", "q4_k"] %}{{ quad_bits(word, 4, q) }}
{%- elif format == "iq4_nl" %}iq4_nl_bytes({{ quad_bits(word, 4, q) }})
{%- elif format in ["q5_0", "q5_1", "q5_k"] %}{{ quad_bits(word, 4, q) }} | {{ quad_one_bit(high, q, 4) }}
{%- elif format == "q6_k" %}{{ quad_bits(word, 4, q) }} | ({{ quad_bits(high, 2, q) }} << 4u)
{%- elif format == "q2_k" %}{{ quad_bits(word, 2, q) }}
{%- elif format == "q3_k" %}{{ quad_bits(word, 2, q) }} | {{ quad_one_bit(high, q, 2) }}
{%- else %}{{ word }}
{%- endif %}
{% endmacro %}
{% macro code_zero(format) %}
{%- if format == "q4_0" %}8{% elif format == "q5_0" %}16{% elif format == "q3_k" %}4{% elif format == "q6_k" %}32{% else %}0{% endif %}
{%- endmacro %}
{% macro scale(format, both, bits, part) %}
{% if format in ["q4_k", "q5_k"] %}{{ both }}.x * f32({{ bits }} & 255u)
{%- elif format in ["q3_k", "q6_k"] %}{{ both }}.x * f32(extractBits(bitcast<i32>({{ bits }}), {{ 8 * part }}u, 8u))
{%- elif format == "q2_k" %}{{ both }}.x * f32(({{ bits }} >> {{ 8 * part }}u) & 15u)
{%- else %}{{ both }}.x
{%- endif %}
{% endmacro %}
{% macro minimum(format, both, bits, part) %}
{% if format in ["q4_k", "q5_k"] %}-({{ both }}.y * f32(({{ bits }} >> 8u) & 255u))
{%- elif format == "q2_k" %}-({{ both }}.y * f32(({{ bits }} >> {{ 8 * part + 4 }}u) & 15u))
{%- else %}{{ both }}.y
{%- endif %}
{% endmacro %}
{% macro byte_functions(format) %}
{% if format == "iq4_nl" %}
{{ functions(format, 1) }}
fn iq4_nl_bytes(q: u32) -> u32 {
    return pack4xI8(vec4<i32>(vec4<f32>(iq4_nl1(q & 15u), iq4_nl1((q >> 8u) & 15u), iq4_nl1((q >> 16u) & 15u), iq4_nl1(q >> 24u))));
}
{% endif %}
{% endmacro %}
{# Functions that a format's codes need, for the module's top. #}
{% macro functions(format, width) %}
{% if format == "iq4_nl" %}
{% set u = "u32" if width == 1 else "vec4<u32>" %}
{% set i = "i32" if width == 1 else "vec4<i32>" %}
// The values of IQ4_NL's 16 codes, four to a word, by a code's upper and lower two bits.
fn iq4_nl{{ width }}(q: {{ u }}) -> {{ "f32" if width == 1 else "vec4<f32>" }} {
    let odd = (q & {{ splat(width, 4) }}) != {{ splat(width, 0) }};
    let low = select({{ u }}(0xbfad9881u), {{ u }}(0xf6eaddcfu), odd);
    let high = select({{ u }}(0x26190d01u), {{ u }}(0x71594535u), odd);
    let word = select(low, high, (q & {{ splat(width, 8) }}) != {{ splat(width, 0) }});
    let shift = {{ splat(width, 24) }} - {{ splat(width, 8) }} * (q & {{ splat(width, 3) }});
    return {{ "f32" if width == 1 else "vec4<f32>" }}(bitcast<{{ i }}>(word << shift) >> {{ splat(width, 24) }});
}
{% endif %}
{% endmacro %}
