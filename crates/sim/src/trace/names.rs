// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers stand for the names that some formats give to disks and files.

use std::collections::HashMap;

use super::report::Reason;

/// More names than this are no disks: a trace must not fill the RAM.
const NAMES_MAX: usize = 1 << 14;
const NAME_BYTES_MAX: usize = 4096;

/// Names and their numbers, in order of appearance.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<Box<[u8]>, u32>,
    /// Most lines name the same disk as the line before.
    last: (Vec<u8>, u32),
}

impl Names {
    pub(super) fn number(&mut self, name: &[u8]) -> Result<u32, Reason> {
        if name == self.last.0 && !name.is_empty() {
            return Ok(self.last.1);
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if name.len() > NAME_BYTES_MAX => return Err(Reason::TooLarge("name")),
            None if self.numbers.len() == NAMES_MAX => return Err(Reason::TooManyNames),
            None => {
                let number = self.numbers.len() as u32;
                self.numbers.insert(name.into(), number);
                number
            }
        };
        self.last.0.clear();
        self.last.0.extend_from_slice(name);
        self.last.1 = number;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_as_they_come() {
        let mut names = Names::default();
        let numbers: Vec<_> = [&b"a"[..], b"b", b"a", b"a", b"c"].map(|it| names.number(it)).into();
        assert_eq!(numbers, [Ok(0), Ok(1), Ok(0), Ok(0), Ok(2)]);
        for nth in 3..NAMES_MAX {
            assert_eq!(names.number(format!("name {nth}").as_bytes()), Ok(nth as u32));
        }
        assert_eq!(names.number(b"one more"), Err(Reason::TooManyNames));
        assert_eq!(names.number(b"c"), Ok(2));
    }
}
