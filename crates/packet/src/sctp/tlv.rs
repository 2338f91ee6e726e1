//! What chunks and parameters have in common (RFC 9260 §3.2): a type, a length, a value, padding.

use super::SctpError;

/// The first two bytes, and the value.
type Taken<'a> = ([u8; 2], &'a [u8]);

/// Takes off the next chunk or parameter: two bytes, a length of two bytes that counts all four, the value, padding to
/// a multiple of four, which the last may lack. `None` at the end; nothing is left behind an error.
pub(super) fn take<'a>(rest: &mut &'a [u8]) -> Option<Result<Taken<'a>, SctpError>> {
    let whole = std::mem::take(rest);
    if whole.is_empty() {
        return None;
    }
    let left = whole.len();
    let Some([first, second, high, low]) = whole.first_chunk() else {
        return Some(Err(SctpError::Length { length: left, left }));
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let Some(value) = whole.get(4..length) else {
        return Some(Err(SctpError::Length { length, left }));
    };
    *rest = whole.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(Ok(([*first, *second], value)))
}
