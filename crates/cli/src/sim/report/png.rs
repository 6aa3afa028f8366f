// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures as PNG, for programs that show no SVG. Only with the feature `png`.

use anyhow::{Context, bail};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Pixels for each unit of a picture, so that letters are sharp on a slide.
const SCALE: f32 = 2.0;

/// Draws pictures with the fonts of this machine.
pub(super) struct Painter {
    options: Options<'static>,
}

impl std::fmt::Debug for Painter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Painter")
    }
}

impl Painter {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut options = Options::default();
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        // Any font is better than no letters; pictures name DejaVu Sans, which most machines have.
        let any = fonts.faces().find_map(|face| Some(face.families.first()?.0.clone()));
        let Some(any) = any else {
            bail!(
                "--pictures: PNG files need a font, and this machine has none; install one \
                 (Debian: fonts-dejavu-core), or build without the feature `png`"
            );
        };
        fonts.set_sans_serif_family(any);
        Ok(Self { options })
    }

    /// An SVG picture as a PNG file, as it looks on a light page.
    pub(super) fn png(&self, svg: &str) -> anyhow::Result<Vec<u8>> {
        let failed = || "--pictures: a picture can't be drawn as PNG";
        let tree = Tree::from_str(svg, &self.options).with_context(failed)?;
        let (width, height) = (tree.size().width() * SCALE, tree.size().height() * SCALE);
        let mut pixmap = Pixmap::new(width.ceil() as u32, height.ceil() as u32).with_context(failed)?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixmap.as_mut());
        pixmap.encode_png().with_context(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_its_size_and_its_colours() {
        // Without fonts there is nothing to test; the message is for users.
        let Ok(painter) = Painter::new() else { return println!("skipped: no font here") };
        let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"20\">\
                   <style>.a { fill: #d55e00; } @media (prefers-color-scheme: dark) { .a { fill: #000000; } }</style>\
                   <rect class=\"a\" width=\"40\" height=\"20\"/></svg>";
        let png = painter.png(svg).unwrap();
        let pixmap = Pixmap::decode_png(&png).unwrap();
        assert_eq!((pixmap.width(), pixmap.height()), (80, 40));
        let pixel = pixmap.pixel(40, 20).unwrap();
        assert_eq!((pixel.red(), pixel.green(), pixel.blue()), (0xd5, 0x5e, 0x00), "the light colours");
    }
}
