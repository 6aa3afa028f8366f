// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the kernel writes paths in its tables of mounts.

/// The bytes of a path in /proc/PID/mountinfo, which has blanks and the like as a backslash with
/// three octal digits.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        match after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(b'\\');
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_backslashes_come_back() {
        assert_eq!(unescape("/a\\040b\\134c\\9"), b"/a b\\c\\9");
    }
}
