// SPDX-License-Identifier: MIT OR Apache-2.0
//! The columns of a fleet's table, in their order: the name of each, and how it is read from a
//! row. Both kinds of file are written from this list.

use super::row::Row;

/// How a row's value is read.
pub(super) enum Read {
    Text(fn(&Row) -> Option<&str>),
    Count(fn(&Row) -> Option<u64>),
    Ratio(fn(&Row) -> Option<f64>),
    Truth(fn(&Row) -> Option<bool>),
    Counts(fn(&Row) -> &[u64]),
    Ratios(fn(&Row) -> &[Option<f64>]),
}

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) read: Read,
}

macro_rules! columns {
    ($($name:ident: $kind:ident $read:expr;)*) => {
        pub(super) const COLUMNS: &[Column] =
            &[$(Column { name: stringify!($name), read: Read::$kind($read) }),*];
    };
}

columns! {
    recording: Text |row| Some(&row.recording);
    error: Text |row| row.error.as_deref();
    file_bytes: Count |row| Some(row.file_bytes);
    origin: Text |row| Some(&row.origin);
    cache: Text |row| Some(&row.cache);
    format: Text |row| row.format.as_deref();
    requests: Count |row| row.requests;
    reads: Count |row| row.reads;
    writes: Count |row| row.writes;
    read_bytes: Count |row| row.read_bytes;
    write_bytes: Count |row| row.write_bytes;
    span_ns: Count |row| row.span_ns;
    footprint_bytes: Count |row| row.footprint_bytes;
    reuse: Ratio |row| row.reuse;
    helps: Truth |row| row.helps;
    needs_cache: Truth |row| row.needs_cache;
    because: Text |row| row.because.as_deref();
    converged: Truth |row| row.converged;
    cache_bytes: Count |row| row.cache_bytes;
    mode: Text |row| row.mode.as_deref();
    alone_mean_ns: Count |row| row.alone_mean_ns;
    alone_read_mean_ns: Count |row| row.alone_read_mean_ns;
    alone_write_mean_ns: Count |row| row.alone_write_mean_ns;
    mean_ns: Count |row| row.mean_ns;
    read_mean_ns: Count |row| row.read_mean_ns;
    write_mean_ns: Count |row| row.write_mean_ns;
    read_hit_ratio: Ratio |row| row.read_hit_ratio;
    flash_write_bytes_per_day: Count |row| row.flash_write_bytes_per_day;
    sizes_bytes: Counts |row| &row.sizes_bytes;
    sizes_read_hit_ratio: Ratios |row| &row.sizes_read_hit_ratio;
    sizes_mean_ns: Counts |row| &row.sizes_mean_ns;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_field_of_a_row_is_a_column() {
        let row = serde_json::to_value(Row::default()).unwrap();
        let mut fields: BTreeSet<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        // What tells a changed recording, and nobody asks for.
        assert!(fields.remove("changed_ns"));
        let names: BTreeSet<&str> = COLUMNS.iter().map(|it| it.name).collect();
        assert_eq!((names.len(), &names), (COLUMNS.len(), &fields));
    }
}
