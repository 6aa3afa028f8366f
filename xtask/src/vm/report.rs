// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guest with the database says: its one program is `init.sh`.

/// A line of its report.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The kernel is up; the disk is not touched yet.
    Booted,
    /// The journal of ext4 is replayed.
    Mounted,
    /// All checks passed; the database is that of so many commits, but for wrong rows.
    State { commits: u64, rows: u64, wrong: u64 },
    /// The writer begins.
    Writing,
    /// This commit is durable.
    Acknowledged(u64),
    /// The writer got an error.
    Stopped,
    /// A check failed.
    Failed(String),
    /// Clean unmount.
    Down,
    /// Something else, from one of the programs.
    Said(String),
}

impl Line {
    pub(super) fn parse(text: &str) -> Self {
        let mut words = text.split(' ');
        let word = words.next().unwrap_or_default();
        // SQLite's total() is a float.
        let numbers: Vec<u64> = words.map_while(|it| it.trim_end_matches(".0").parse().ok()).collect();
        match (word, numbers[..].as_ref()) {
            ("booted", _) => Self::Booted,
            ("mounted", _) => Self::Mounted,
            ("state", &[commits, rows, wrong]) => Self::State { commits, rows, wrong },
            ("writing", _) => Self::Writing,
            ("ack", &[commit]) => Self::Acknowledged(commit),
            ("stopped", _) => Self::Stopped,
            ("failed", _) => Self::Failed(text.to_owned()),
            ("down", _) => Self::Down,
            _ => Self::Said(text.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_understood() {
        assert_eq!(Line::parse("state 760 759 2.0"), Line::State { commits: 760, rows: 759, wrong: 2 });
        assert_eq!(Line::parse("ack 17"), Line::Acknowledged(17));
        assert_eq!(Line::parse("ack 1x"), Line::Said("ack 1x".to_owned()));
        assert_eq!(Line::parse("failed fsck"), Line::Failed("failed fsck".to_owned()));
    }
}
