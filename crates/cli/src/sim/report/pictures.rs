// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--pictures FOLDER`: writes each chart of a report, as it is in a wide window, to an SVG file of
//! its own.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

#[cfg(feature = "png")]
use super::png::Painter;

/// The first text of a picture, by which it is known.
const MARK: &str = "<!-- flashfront picture -->\n";

/// The folder that they go to.
#[derive(Debug)]
pub(super) struct Pictures {
    folder: PathBuf,
    #[cfg(feature = "png")]
    painter: Painter,
}

impl Pictures {
    /// Makes the folder, if it isn't there; refuses one with files of others that may have to give
    /// way. What pictures there will be is not known before all is simulated, but how they are
    /// called.
    pub(super) fn at(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("--pictures {}", folder.display()))?;
        let about = || format!("--pictures {}", folder.display());
        for file in fs::read_dir(folder).with_context(about)? {
            let path = file.with_context(about)?.path();
            if path.file_name().and_then(OsStr::to_str).is_some_and(is_name) {
                refuse_what_is_no_picture(&path)?;
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            #[cfg(feature = "png")]
            painter: Painter::new()?,
        })
    }

    /// Writes the pictures of a page; older ones of the same names are replaced, and no other file.
    pub(super) fn write(&self, body: &str, style: &str) -> anyhow::Result<()> {
        let pictures: Vec<(PathBuf, String)> =
            pictures(body, style).into_iter().map(|(name, picture)| (self.folder.join(name), picture)).collect();
        for (path, _) in &pictures {
            refuse_what_is_no_picture(path)?;
        }
        for (path, picture) in &pictures {
            fs::write(path, picture).with_context(|| format!("--pictures: {}", path.display()))?;
            #[cfg(feature = "png")]
            {
                let path = path.with_extension("png");
                let png = self.painter.png(picture)?;
                fs::write(&path, png).with_context(|| format!("--pictures: {}", path.display()))?;
            }
        }
        tracing::info!("{} pictures are in {}", pictures.len(), self.folder.display());
        Ok(())
    }
}

/// Whether a picture may be called that: `01-hits.svg`.
fn is_name(name: &str) -> bool {
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    digits >= 2 && name[digits..].starts_with('-') && name.ends_with(".svg")
}

/// A PNG file is known by the SVG file of the same name, which is beside it.
fn refuse_what_is_no_picture(path: &Path) -> anyhow::Result<()> {
    let png = path.with_extension("png");
    if cfg!(feature = "png") && png.exists() && !path.exists() {
        bail!("--pictures: {}: there is a file that is no picture of flashfront; name another folder", png.display());
    }
    let about = || format!("--pictures: {}", path.display());
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file.with_context(about)?,
    };
    let mut head = Vec::new();
    file.take(MARK.len() as u64).read_to_end(&mut head).with_context(about)?;
    if head != MARK.as_bytes() {
        bail!("{}: there is a file that is no picture of flashfront; name another folder", about());
    }
    Ok(())
}

/// Names and texts: numbered as they come, and called after what they show.
fn pictures(body: &str, style: &str) -> Vec<(String, String)> {
    let all = body.split("<svg ").skip(1).filter_map(|rest| rest.split_once("</svg>"));
    let all = all.filter(|(svg, _)| svg.starts_with("class=\"for-wide\""));
    let picture = |(nth, (svg, _)): (usize, (&str, &str))| {
        let label = svg.split_once("aria-label=\"").and_then(|(_, rest)| rest.split_once('"')).map_or("", |it| it.0);
        let (open, content) = svg.split_once('>').unwrap_or((svg, ""));
        let text = format!(
            "{MARK}<svg xmlns=\"http://www.w3.org/2000/svg\" {open}>\n<style>{style}</style>\n\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>{content}</svg>\n"
        );
        (format!("{:02}-{}.svg", nth + 1, slug(label)), text)
    };
    all.enumerate().map(picture).collect()
}

fn slug(label: &str) -> String {
    let words = label.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_picture_is_whole_and_has_a_name() {
        let wide = "<p>a</p><svg class=\"for-wide\" width=\"9\" aria-label=\"Dirty, MB\"><text>x</text></svg>b";
        let body = format!("{wide}<svg class=\"for-narrow\"></svg><svg class=\"for-wide\" aria-label=\"\"></svg>");
        let body = &body;
        let found = pictures(body, "text {}");
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["01-dirty-mb.svg", "02-.svg"]);
        assert!(names.iter().all(|name| is_name(name)) && !is_name("logo.svg") && !is_name("1-a.svg"));
        let text = &found[0].1;
        assert!(text.starts_with(MARK) && text.ends_with("<text>x</text></svg>\n"), "{text}");
        assert!(
            text.contains("xmlns=\"http://www.w3.org/2000/svg\" class=\"for-wide\" width=\"9\"")
                && text.contains("text {}"),
            "{text}"
        );
    }
}
