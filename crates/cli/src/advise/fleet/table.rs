// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of a fleet as a file: Parquet or CSV, by the ending of its name. The file appears as
//! a whole, in place of an older one.
//!
//! In Parquet all columns are of one row group and without compression: a row has some 300 bytes.

use std::fs::Permissions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::columns::{COLUMNS, Column, Read};
use super::row::Row;
use crate::csv;
use crate::usage::misused;

/// How the name of a table begins while it is written.
pub(super) const TEMPORARY: &str = ".flashfront-fleet-";

#[derive(Clone, Copy, Debug)]
enum Kind {
    Parquet,
    Csv,
}

/// A place for a table.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    kind: Kind,
}

impl Table {
    pub(super) fn at(path: &Path) -> anyhow::Result<Self> {
        let kind = match path.extension().and_then(|it| it.to_str()) {
            Some("parquet") => Kind::Parquet,
            Some("csv") => Kind::Csv,
            _ => misused!("--out {}: the name of a table ends in .parquet or .csv", path.display()),
        };
        Ok(Self { path: path.to_owned(), kind })
    }

    /// Writes all rows, in place of an older table if there is one.
    pub(super) fn write(&self, rows: &[Row]) -> anyhow::Result<()> {
        let place = || format!("--out {}: can't be written", self.path.display());
        let mut file = self.temporary()?;
        let out = BufWriter::new(file.as_file_mut());
        match self.kind {
            Kind::Parquet => parquet(rows, out).with_context(place)?,
            Kind::Csv => csv(rows, out).with_context(place)?,
        }
        file.as_file().sync_all().with_context(place)?;
        file.persist(&self.path).with_context(place)?;
        Ok(())
    }

    /// A file beside the place, so that renaming it is one step; gone unless it is kept.
    fn temporary(&self) -> anyhow::Result<tempfile::NamedTempFile> {
        let folder = folder_of(&self.path);
        let mut builder = tempfile::Builder::new();
        // As any new file: all that the umask leaves.
        builder.prefix(TEMPORARY).permissions(Permissions::from_mode(0o666));
        let place = || format!("--out {}: no file can be made in {}", self.path.display(), folder.display());
        builder.tempfile_in(folder).with_context(place)
    }
}

/// Writes all rows as CSV. Values of a list have spaces between them.
fn csv(rows: &[Row], mut out: impl Write) -> anyhow::Result<()> {
    let names = COLUMNS.iter().map(|it| it.name.to_owned()).collect();
    let rows = rows.iter().map(|row| COLUMNS.iter().map(|column| cell(row, column)).collect());
    let text = csv::records(std::iter::once(names).chain(rows).collect::<Vec<Vec<String>>>())?;
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn cell(row: &Row, column: &Column) -> String {
    fn text<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(String::new, |it| it.to_string())
    }
    fn list<T: ToString>(values: impl Iterator<Item = Option<T>>) -> String {
        // A value that is missing keeps its place.
        let values = values.map(|it| it.map_or_else(|| "-".to_owned(), |it| it.to_string()));
        values.collect::<Vec<_>>().join(" ")
    }
    match column.read {
        Read::Text(of) => of(row).unwrap_or_default().to_owned(),
        Read::Count(of) => text(of(row)),
        Read::Ratio(of) => text(of(row)),
        Read::Truth(of) => text(of(row)),
        Read::Counts(of) => list(of(row).iter().map(Some)),
        Read::Ratios(of) => list(of(row).iter().map(|it| it.as_ref())),
    }
}

fn parquet(rows: &[Row], out: impl Write + Send) -> Result<(), ParquetError> {
    let fields = COLUMNS.iter().map(field).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("fleet").with_fields(fields).build()?;
    let properties =
        WriterProperties::builder().set_created_by(concat!("flashfront ", env!("CARGO_PKG_VERSION")).to_owned());
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?;
    let mut group = file.next_row_group()?;
    for column in COLUMNS {
        match column.read {
            Read::Text(of) => flat::<ByteArrayType>(&mut group, rows, |row| of(row).map(ByteArray::from))?,
            Read::Count(of) => flat::<Int64Type>(&mut group, rows, |row| of(row).map(number))?,
            Read::Ratio(of) => flat::<DoubleType>(&mut group, rows, of)?,
            Read::Truth(of) => flat::<BoolType>(&mut group, rows, of)?,
            Read::Counts(of) => {
                nested::<Int64Type>(&mut group, rows, |row| of(row).iter().map(|it| Some(number(*it))).collect())?
            }
            Read::Ratios(of) => nested::<DoubleType>(&mut group, rows, |row| of(row).to_vec())?,
        }
    }
    group.close()?;
    file.close()?;
    Ok(())
}

/// Parquet's readers take signed numbers best, and nothing here is larger.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A column as Parquet describes it. A list is a group of a repeated group of values.
fn field(column: &Column) -> Result<TypePtr, ParquetError> {
    let (physical, logical, is_list) = match column.read {
        Read::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), false),
        Read::Count(_) => (Physical::INT64, None, false),
        Read::Ratio(_) => (Physical::DOUBLE, None, false),
        Read::Truth(_) => (Physical::BOOLEAN, None, false),
        Read::Counts(_) => (Physical::INT64, None, true),
        Read::Ratios(_) => (Physical::DOUBLE, None, true),
    };
    let value = |name| {
        let value = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        value.with_logical_type(logical.clone()).build().map(Arc::new)
    };
    if !is_list {
        return value(column.name);
    }
    let group = |name, repetition, of| Type::group_type_builder(name).with_repetition(repetition).with_fields(vec![of]);
    let values = group("list", Repetition::REPEATED, value("element")?).build()?;
    let list = group(column.name, Repetition::REQUIRED, Arc::new(values));
    list.with_logical_type(Some(LogicalType::List)).build().map(Arc::new)
}

/// Writes a column with a value, or none, in each row.
fn flat<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    rows: &[Row],
    of: impl Fn(&Row) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let cells: Vec<Option<T::T>> = rows.iter().map(of).collect();
    let levels: Vec<i16> = cells.iter().map(|it| i16::from(it.is_some())).collect();
    let values: Vec<T::T> = cells.into_iter().flatten().collect();
    write::<T>(group, &values, &levels, None)
}

/// Writes a column with a list in each row. Levels: 0 is an empty list, 1 a missing value, 2 a
/// value; what is repeated belongs to the list before.
fn nested<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    rows: &[Row],
    of: impl Fn(&Row) -> Vec<Option<T::T>>,
) -> Result<(), ParquetError> {
    let (mut values, mut levels, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let list = of(row);
        if list.is_empty() {
            levels.push(0);
            repeated.push(0);
        }
        for (nth, value) in list.into_iter().enumerate() {
            levels.push(1 + i16::from(value.is_some()));
            repeated.push(i16::from(nth > 0));
            values.extend(value);
        }
    }
    write::<T>(group, &values, &levels, Some(&repeated))
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
    levels: &[i16],
    repeated: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(values, Some(levels), repeated)?;
    column.close()
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
