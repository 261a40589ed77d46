//! Shorter SVG text: the drawing backend repeats attributes on each element that are defaults, or that elements can inherit.

use std::borrow::Cow;

/// Attributes of the root, which elements inherit.
const INHERITED: [&str; 3] = [" font-family=\"sans-serif\"", " fill=\"#232328\"", " text-anchor=\"middle\""];
/// Attributes with their default values. The root has none of them.
const DEFAULTS: [&str; 3] = [" opacity=\"1\"", " stroke=\"none\"", " stroke-width=\"1\""];

/// The same picture with fewer bytes. Text between tags stays, without the white space around it.
pub(super) fn compact(svg: &str) -> String {
    let mut short = String::with_capacity(svg.len() / 2);
    for element in svg.split_inclusive('>') {
        let Some((text, tag)) = element.split_once('<') else { continue };
        short += text.trim();
        short += "<";
        short += &tag_of(tag);
        if tag.ends_with("/>") || tag.starts_with('/') || tag.starts_with("svg ") {
            short += "\n";
        }
    }
    short
}

/// A tag, from its name to `>`.
fn tag_of(tag: &str) -> Cow<'_, str> {
    if let Some(root) = tag.strip_prefix("svg ") {
        return format!("svg{} {root}", INHERITED.concat()).into();
    }
    let mut short = Cow::from(tag);
    for attribute in DEFAULTS.iter().chain(&INHERITED) {
        if let Some((before, after)) = short.split_once(attribute) {
            short = format!("{before}{after}").into();
        }
    }
    match short.split_once(" font-size=\"").and_then(|(before, rest)| {
        let (size, after) = rest.split_once('"')?;
        let size = (size.parse::<f64>().ok()? * 100.0).round() / 100.0;
        Some(format!("{before} font-size=\"{size}\"{after}"))
    }) {
        Some(rounded) => rounded.into(),
        None => short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_attributes_are_written_once_and_text_is_kept() {
        let long = "<svg width=\"9\">\n<rect x=\"1\" opacity=\"1\" fill=\"#FFFFFF\" stroke=\"none\"/>\n\
                    <text x=\"2\" text-anchor=\"middle\" font-family=\"sans-serif\" font-size=\"11.2903225\" opacity=\"1\" \
                    fill=\"#232328\">\na opacity=\"1\" b\n</text>\n</svg>\n";
        let short = "<svg font-family=\"sans-serif\" fill=\"#232328\" text-anchor=\"middle\" width=\"9\">\n\
                     <rect x=\"1\" fill=\"#FFFFFF\"/>\n<text x=\"2\" font-size=\"11.29\">a opacity=\"1\" b</text>\n</svg>\n";
        assert_eq!(compact(long), short);
    }

    #[test]
    fn other_values_of_attributes_stay() {
        let tag = "<polyline fill=\"none\" stroke=\"#232328\" stroke-width=\"3\" points=\"1,2 3,4 \"/>\n";
        assert_eq!(compact(tag), tag);
        let tag = "<text x=\"2\" text-anchor=\"start\" fill=\"#FFFFFF\">";
        assert_eq!(compact(tag), tag);
    }
}
