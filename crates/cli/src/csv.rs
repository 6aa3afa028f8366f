// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables that scripts read, as CSV. The crate `csv` quotes fields as RFC 4180 demands it; lines
//! end in LF.
//!
//! A column is a name and what fills it, side by side, so that heads and fields can't drift apart.

/// The name of a column, and its field in a row.
pub(crate) type Column<R> = (&'static str, fn(&R) -> String);

/// The table as text: a line with the names, and a line for each row.
pub(crate) fn text<R>(columns: &[Column<R>], rows: impl IntoIterator<Item = R>) -> anyhow::Result<String> {
    let names = records([columns.iter().map(|column| column.0)])?;
    Ok(names + &lines(columns, rows)?)
}

/// The lines of a table without its head, for rows that come one after the other.
pub(crate) fn lines<R>(columns: &[Column<R>], rows: impl IntoIterator<Item = R>) -> anyhow::Result<String> {
    records(rows.into_iter().map(|row| columns.iter().map(move |column| column.1(&row))))
}

/// Lines of fields.
pub(crate) fn records<F: AsRef<str>>(
    records: impl IntoIterator<Item = impl IntoIterator<Item = F>>,
) -> anyhow::Result<String> {
    let mut table = ::csv::Writer::from_writer(Vec::new());
    records.into_iter().try_for_each(|fields| {
        fields.into_iter().try_for_each(|field| table.write_field(field.as_ref()))?;
        table.write_record(None::<&[u8]>)
    })?;
    let bytes = table.into_inner().map_err(::csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8(bytes).expect("fields of text make a text"))
}

/// A field that is empty where there is nothing to say.
pub(crate) fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_may_hold_anything() {
        let columns: &[Column<(&str, Option<u64>)>] = &[("name", |it| it.0.to_owned()), ("count", |it| optional(it.1))];
        let rows = [("random read, 32 \"deep\"", Some(7)), ("write", None)];
        let told = text(columns, rows).unwrap();
        assert_eq!(told, "name,count\n\"random read, 32 \"\"deep\"\"\",7\nwrite,\n");
        assert_eq!(text(columns, []).unwrap(), "name,count\n", "a table without rows has its head");
    }
}
