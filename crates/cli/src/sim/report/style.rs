// SPDX-License-Identifier: MIT OR Apache-2.0
//! How reports look: colours, type and space, of pages and of pictures that stand alone.
//!
//! The colours of lines are those of M. Okabe and K. Ito, "Color Universal Design" (2008). Dark
//! pages have lighter ones. Each line also has dashes or a mark of its own, for readers who see no
//! colours.

/// Each colour: its name, its value on a light page, and its value on a dark page.
const COLOURS: [(&str, &str, &str); 15] = [
    ("paper", "#ffffff", "#14171a"),
    ("ink", "#1a1a1a", "#e8e8e8"),
    ("muted", "#565656", "#a8adb3"),
    ("grid", "#e4e4e4", "#2a2f35"),
    ("axis", "#777777", "#80868c"),
    ("rule", "#bbbbbb", "#454b52"),
    ("tint", "#fdeee2", "#33241a"),
    ("link", "#0b5394", "#8fc7ff"),
    ("vermillion", "#d55e00", "#ff7d26"),
    ("blue", "#0072b2", "#4a9fe0"),
    ("green", "#009e73", "#2bbd92"),
    ("purple", "#cc79a7", "#e39ac4"),
    ("orange", "#e69f00", "#f0b429"),
    ("sky", "#56b4e9", "#8fd0f7"),
    ("grey", "#8a8a8a", "#8f959b"),
];

/// Names of the colours that lines have, next to ink.
const LINES: [&str; 8] = ["ink", "vermillion", "blue", "green", "purple", "orange", "sky", "grey"];

/// The narrowest window that gets the wide pictures, in pixels: below, their letters would be less
/// than 11 pixels high.
const WIDE_FROM: u32 = 800;

/// The fonts of pages and pictures.
const FONTS: &str = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";

const PAGE: &str = "
* { box-sizing: border-box; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 FONTS; max-width: 1090px; margin: 2em auto;
  padding: 0 16px; }
h1 { font-size: 1.7em; line-height: 1.25; margin: 0 0 .3em; }
h2 { font-size: 1.25em; margin: 2.2em 0 .3em; overflow-wrap: anywhere; }
h3 { font-size: 1.05em; margin: 1.4em 0 .2em; }
p { margin: .5em 0; max-width: 62em; overflow-wrap: anywhere; } .small { color: var(--muted); font-size: .87em; }
code { font: .9em ui-monospace, 'DejaVu Sans Mono', monospace; overflow-wrap: anywhere; } sup { font-size: 11px; }
a { color: var(--link); }
.panels { display: flex; flex-wrap: wrap; gap: 12px 20px; }
svg { display: block; max-width: 100%; height: auto; margin: .6em 0; }
.for-narrow { display: none; }
/* Only between the narrow cards and a window that is wide enough may a table be wider than the page. */
.rows { overflow-x: auto; } table { border-collapse: collapse; font-size: .84em; font-variant-numeric: tabular-nums; margin: .8em 0; }
th, td { padding: .14em .5em; text-align: right; white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; white-space: normal; } thead th { border-bottom: 2px solid var(--axis); }
.name { text-align: left; } tbody { border-bottom: 1px solid var(--rule); }
tr.ours td { background: var(--tint); font-weight: 600; }
td.marked { text-decoration: underline; text-decoration-thickness: 2px; text-underline-offset: 3px; }
.bar { display: inline-block; height: .75em; min-width: 1px; }
footer { margin-top: 3em; border-top: 1px solid var(--rule); padding-top: .6em; }
.line:hover { stroke-width: 5; }
@media screen and (max-width: WIDTHpx) {
body { margin: 1em auto; padding: 0 12px; }
.for-wide, thead { display: none; } .for-narrow { display: block; width: 100%; max-width: 520px; }
table, tbody { display: block; } tbody { border: 0; }
tr { display: grid; grid-template-columns: 1fr 1fr; gap: 0 14px; border-top: 1px solid var(--rule); padding: .5em 0; }
tr.ours { background: var(--tint); }
td { display: flex; justify-content: space-between; gap: 0 .6em; padding: .1em .3em;
  white-space: nowrap; }
td::before { content: attr(data-column); color: var(--muted); font-weight: 400; text-align: left; white-space: normal; }
td.name { font-weight: 600; white-space: normal; overflow-wrap: anywhere; }
td.blank, td.none, td.drawn::before { display: none; } td.drawn { grid-column: 1 / -1; justify-content: flex-start; }
}
@media print { body { margin: 0; } .panels, table, svg { break-inside: avoid; } }
";

/// The rules of pictures, which are the same in a page and in a file.
const PICTURE: &str = "
text { font: TEXTpx FONTS; fill: var(--ink); } .heading { font-size: HEADINGpx; font-weight: 600; }
.minor { fill: var(--muted); } .ours { font-weight: 700; }
.over { fill: var(--muted); stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; paint-order: stroke; }
.ground { fill: var(--paper); } .grid { stroke: var(--grid); } .axis { stroke: var(--axis); fill: none; }
.leader { stroke: var(--rule); stroke-width: .8; fill: none; } .guide { stroke: var(--muted); stroke-dasharray: 6 4; }
.front { stroke: var(--grid); stroke-width: 4; fill: none; stroke-linejoin: round; }
.line { fill: none; stroke-linejoin: round; } .mark { stroke: var(--paper); stroke-width: .8; }
";

/// Height of letters in pictures, and in their headings.
pub(super) const TEXT_PX: f64 = 12.5;
pub(super) const HEADING_PX: f64 = 14.5;

/// The rules of pictures; colours are still names.
fn picture_rules() -> String {
    let lines = LINES.map(|name| {
        format!(
            ".s-{name} {{ stroke: var(--{name}); }} .f-{name} {{ fill: var(--{name}); background: var(--{name}); }}\n"
        )
    });
    let sizes = PICTURE.replace("TEXT", &TEXT_PX.to_string()).replace("HEADING", &HEADING_PX.to_string());
    (sizes + &lines.concat()).replace("FONTS", FONTS)
}

/// The style of a page with pictures: light, or dark for readers who prefer that.
pub(super) fn of_page() -> String {
    let values = |value: fn(&(&str, &str, &str)) -> String| COLOURS.iter().map(value).collect::<String>();
    let light = values(|(name, light, _)| format!(" --{name}: {light};"));
    let dark = values(|(name, _, dark)| format!(" --{name}: {dark};"));
    let page = PAGE.replace("FONTS", FONTS).replace("WIDTH", &(WIDE_FROM - 1).to_string());
    format!(
        ":root {{ color-scheme: light dark;{light} }}\n@media (prefers-color-scheme: dark) {{ :root {{{dark} }} }}{}{page}",
        picture_rules()
    )
}

/// The style of a picture that stands alone. Programs that show pictures know no names of colours,
/// so it has values.
pub(super) fn of_picture() -> String {
    let with = |value: fn(&(&str, &str, &str)) -> String| {
        COLOURS
            .iter()
            .fold(picture_rules(), |rules, colour| rules.replace(&format!("var(--{})", colour.0), &value(colour)))
    };
    let (light, dark) = (with(|it| it.1.to_owned()), with(|it| it.2.to_owned()));
    format!("{light}@media (prefers-color-scheme: dark) {{{dark}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How bright a colour is, as WCAG 2 defines it.
    fn luminance(hex: &str) -> f64 {
        let part = |at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        let linear = |it: f64| if it <= 0.04045 { it / 12.92 } else { ((it + 0.055) / 1.055).powf(2.4) };
        0.2126 * linear(part(1)) + 0.7152 * linear(part(3)) + 0.0722 * linear(part(5))
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_and_lines_can_be_read_on_light_and_on_dark_pages() {
        let of = |name: &str| COLOURS.iter().find(|it| it.0 == name).unwrap();
        let (paper, tint) = (of("paper"), of("tint"));
        for name in ["ink", "muted", "link"] {
            let text = of(name);
            for ground in [paper, tint] {
                assert!(contrast(text.1, ground.1) > 4.5 && contrast(text.2, ground.2) > 4.5, "{name}");
            }
        }
        for name in LINES {
            let line = of(name);
            // Of Okabe's and Ito's, orange and sky are the faintest on white.
            assert!(contrast(line.1, paper.1) > 2.1 && contrast(line.2, paper.2) > 4.5, "{name}");
        }
    }

    /// The dashboard has the same colours under the same names, and more of its own.
    #[test]
    fn the_dashboard_looks_alike() {
        let dashboard = include_str!("../../../../serve/src/http/page/dashboard.css");
        let (light, dark) = dashboard.split_once("prefers-color-scheme: dark").unwrap();
        for (name, on_light, on_dark) in COLOURS {
            let value = |colour: &str| format!("--{name}: {colour};");
            assert!(light.contains(&value(on_light)) && dark.contains(&value(on_dark)), "{name}");
        }
    }

    #[test]
    fn a_file_has_values_and_a_page_has_names() {
        let (page, picture) = (of_page(), of_picture());
        assert!(!picture.contains("var("), "{picture}");
        let after = page.split_once("} }").unwrap().1;
        assert!(!after.contains('#'), "a colour that no dark page changes: {after}");
        for style in [page, picture] {
            assert!(style.contains("prefers-color-scheme: dark"));
            assert_eq!(style.matches('{').count(), style.matches('}').count());
        }
    }
}
