// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table as its readers find it: Parquet by the crate's own reader, CSV by its lines.

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, RowAccessor};

use super::*;

fn rows() -> Vec<Row> {
    let sized = Row {
        recording: "a \"b\", c".to_owned(),
        file_bytes: 7,
        requests: Some(1 << 40),
        reuse: Some(0.25),
        helps: Some(true),
        sizes_bytes: vec![64, 128],
        sizes_read_hit_ratio: vec![None, Some(0.5)],
        ..Row::default()
    };
    let unreadable = Row { recording: "d".to_owned(), error: Some("no trace".to_owned()), ..Row::default() };
    vec![sized, unreadable]
}

#[test]
fn parquet_has_each_value_in_its_row() {
    let mut file = Vec::new();
    parquet(&rows(), &mut file).unwrap();
    let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
    let found: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let of = |row: usize, name: &str| {
        let at = COLUMNS.iter().position(|it| it.name == name).unwrap();
        found[row].get_column_iter().nth(at).map(|it| it.1.clone()).unwrap()
    };
    assert_eq!(found.len(), 2);
    assert_eq!(of(0, "recording"), Field::Str("a \"b\", c".to_owned()));
    assert_eq!(
        (of(0, "requests"), of(0, "reuse"), of(0, "helps")),
        (Field::Long(1 << 40), Field::Double(0.25), Field::Bool(true))
    );
    assert_eq!((of(0, "error"), of(1, "error")), (Field::Null, Field::Str("no trace".to_owned())));
    assert_eq!(
        (of(1, "requests"), of(1, "mode"), of(1, "recording")),
        (Field::Null, Field::Null, Field::Str("d".to_owned()))
    );
    let at = COLUMNS.iter().position(|it| it.name == "sizes_read_hit_ratio").unwrap();
    assert_eq!(found[0].get_list(at).unwrap().elements(), [Field::Null, Field::Double(0.5)]);
    assert!(found[1].get_list(at).unwrap().elements().is_empty());
}

#[test]
fn csv_has_a_line_for_each_row_and_quotes_what_has_commas() {
    let mut file = Vec::new();
    csv(&rows(), &mut file).unwrap();
    let text = String::from_utf8(file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("recording,error,file_bytes,"), "{text}");
    assert!(lines[1].starts_with("\"a \"\"b\"\", c\",,7,"), "{text}");
    assert!(lines[1].contains(",64 128,- 0.5,"), "{text}");
    assert!(lines[2].starts_with("d,no trace,0,"), "{text}");
}
