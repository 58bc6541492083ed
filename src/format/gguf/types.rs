//! Type numbers of GGUF: of metadata values and of tensors.

use crate::error::{Error, Result};
use crate::format::block::BlockFormat;

/// `general.alignment` must have this type.
pub(super) const U32: u32 = 4;

/// Name of a metadata value's type.
pub(super) fn value_name(kind: u32) -> Option<&'static str> {
    const NAMES: [&str; 13] =
        ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];
    NAMES.get(kind as usize).copied()
}

/// The weight format of a tensor's type number.
///
/// # Errors
/// [`Error::Unsupported`] with the type's name when it is known but not computed, else [`Error::Format`].
pub(super) fn block_format(kind: u32, place: &impl Fn() -> String) -> Result<BlockFormat> {
    use BlockFormat as B;
    let hint = match kind {
        0 => return Ok(B::F32),
        1 => return Ok(B::F16),
        2 => return Ok(B::Q4_0),
        3 => return Ok(B::Q4_1),
        6 => return Ok(B::Q5_0),
        7 => return Ok(B::Q5_1),
        8 => return Ok(B::Q8_0),
        10 => return Ok(B::Q2K),
        11 => return Ok(B::Q3K),
        12 => return Ok(B::Q4K),
        13 => return Ok(B::Q5K),
        14 => return Ok(B::Q6K),
        20 => return Ok(B::Iq4Nl),
        30 => return Ok(B::Bf16),
        _ => "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and Q2_K to Q6_K work",
    };
    match tensor_type_name(kind) {
        Some(name) => Err(Error::unsupported(format!("tensor type {name} ({})", place()), hint)),
        None => Err(Error::format("tensor type", "a known type number", kind, place())),
    }
}

/// Name of a tensor type that ggml knows and we do not compute with. Numbers that ggml has withdrawn have none.
fn tensor_type_name(kind: u32) -> Option<&'static str> {
    Some(match kind {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        40 => "NVFP4",
        _ => return None,
    })
}
