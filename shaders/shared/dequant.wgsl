{# Codes of a packed weight block (src/kernels/layout.rs) as floats, before scaling.

   code(format, width, words, high, k): weight k (0..31) of a block, as f32 (width 1) or as vec4<f32> over four columns (width 4).
   `words` is the prefix of the names that hold the block's words, `high` the name of its fifth bits; both u32 or vec4<u32>.
   For block formats the weight is d * code + m; for float formats the code is the weight.
   Adding a format: a branch here, one in kernels/layout.rs, one in format/block.rs. #}
{% macro splat(width, value) %}{% if width == 1 %}{{ value }}u{% else %}vec4<u32>({{ value }}u){% endif %}{% endmacro %}
{% macro code(format, width, words, high, k) %}
{% set f = "f32" if width == 1 else "vec4<f32>" %}
{% set i = "i32" if width == 1 else "vec4<i32>" %}
{% if format in ["q4_0", "q4_1", "q5_0", "q5_1"] %}
{% set nibble = "((" ~ words ~ (k // 8) ~ " >> " ~ splat(width, 8 * (k % 4) + 4 * (k // 4 % 2)) ~ ") & " ~ splat(width, 15) ~ ")" %}
{% set fifth = "(((" ~ high ~ " >> " ~ splat(width, k) ~ ") & " ~ splat(width, 1) ~ ") << " ~ splat(width, 4) ~ ")" %}
{% if format == "q4_0" %}{{ f }}({{ i }}({{ nibble }}) - {{ i }}(8))
{%- elif format == "q4_1" %}{{ f }}({{ i }}({{ nibble }}))
{%- elif format == "q5_0" %}{{ f }}({{ i }}({{ nibble }} | {{ fifth }}) - {{ i }}(16))
{%- else %}{{ f }}({{ i }}({{ nibble }} | {{ fifth }}))
{%- endif %}
{% elif format == "q8_0" %}{{ f }}(extractBits(bitcast<{{ i }}>({{ words }}{{ k // 4 }}), {{ 8 * (k % 4) }}u, 8u))
{%- elif format == "f16" %}
{% if width == 1 %}unpack2x16float({{ words }}{{ k // 2 }}).{{ "xy"[k % 2] }}
{%- else %}vec4<f32>({% for c in "xyzw" %}unpack2x16float({{ words }}{{ k // 2 }}.{{ c }}).{{ "xy"[k % 2] }}{{ "" if loop.last else ", " }}{% endfor %})
{%- endif %}
{% elif format == "bf16" %}bitcast<{{ f }}>({{ words }}{{ k // 2 }} {{ "<< " ~ splat(width, 16) if k % 2 == 0 else "& " ~ splat(width, 4294901760) }})
{%- else %}bitcast<{{ f }}>({{ words }}{{ k }})
{%- endif %}
{% endmacro %}
