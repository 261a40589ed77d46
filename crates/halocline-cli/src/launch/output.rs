//! Splits the output of ranks into lines.

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a rank's line appears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// With `[rank] ` in front.
    Prefix,
    /// The line alone.
    Plain,
    /// A JSON object with rank, stream and text (`hex` instead of `text` if it is not UTF-8).
    Json,
}

impl Style {
    /// The launcher's stream for the lines of a rank's stream. All JSON objects go to standard output.
    pub(super) fn target(self, stream: Stream) -> Stream {
        match self {
            Self::Json => Stream::Stdout,
            Self::Prefix | Self::Plain => stream,
        }
    }
}

/// A longer line is broken, so that a rank which never ends its line does not fill the memory.
const LONGEST_LINE: usize = 64 << 20;

/// Cuts one stream of one rank into lines. Bytes other than the line end are never changed.
#[derive(Debug)]
pub(super) struct Lines {
    rank: usize,
    stream: Stream,
    style: Style,
    partial: Vec<u8>,
    longest: usize,
}

impl Lines {
    pub(super) fn new(rank: usize, stream: Stream, style: Style) -> Self {
        Self { rank, stream, style, partial: Vec::new(), longest: LONGEST_LINE }
    }

    /// Takes `bytes` and appends the lines that they complete to `out`.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(line) if self.partial.is_empty() => self.emit(line, out),
                Some(line) => {
                    self.partial.extend_from_slice(line);
                    self.finish(out);
                }
                None => self.partial.extend_from_slice(piece),
            }
            if self.partial.len() >= self.longest {
                self.finish(out);
            }
        }
    }

    /// Ends the line that has begun, if one has: the rank prints no more.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            let line = std::mem::take(&mut self.partial);
            self.emit(&line, out);
        }
    }

    fn emit(&self, line: &[u8], out: &mut Vec<u8>) {
        match self.style {
            Style::Prefix => {
                out.extend_from_slice(format!("[{}] ", self.rank).as_bytes());
                out.extend_from_slice(line);
            }
            Style::Plain => out.extend_from_slice(line),
            Style::Json => out.extend_from_slice(self.object(line).to_string().as_bytes()),
        }
        out.push(b'\n');
    }

    fn object(&self, line: &[u8]) -> serde_json::Value {
        let stream = match self.stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        match std::str::from_utf8(line) {
            Ok(text) => serde_json::json!({"rank": self.rank, "stream": stream, "text": text}),
            Err(_) => {
                let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
                serde_json::json!({"rank": self.rank, "stream": stream, "hex": hex})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(style: Style) -> Lines {
        Lines::new(3, Stream::Stderr, style)
    }

    #[test]
    fn a_line_appears_when_it_is_whole() {
        let (mut lines, mut out) = (lines(Style::Prefix), Vec::new());
        lines.feed(b"on", &mut out);
        assert!(out.is_empty());
        lines.feed(b"e\n\ntwo", &mut out);
        assert_eq!(out, b"[3] one\n[3] \n");
        lines.finish(&mut out);
        lines.finish(&mut out);
        assert_eq!(out, b"[3] one\n[3] \n[3] two\n");
    }

    #[test]
    fn however_the_bytes_are_cut_the_lines_are_the_same() {
        let text: Vec<u8> = (0..=255).chain([b'\n', b'\n', 0xff, 0]).collect();
        let whole = {
            let (mut lines, mut out) = (lines(Style::Plain), Vec::new());
            lines.feed(&text, &mut out);
            lines.finish(&mut out);
            out
        };
        assert_eq!(whole, [&text[..], b"\n"].concat());
        for size in 1..8 {
            let (mut lines, mut out) = (lines(Style::Plain), Vec::new());
            text.chunks(size).for_each(|chunk| lines.feed(chunk, &mut out));
            lines.finish(&mut out);
            assert_eq!(out, whole);
        }
    }

    #[test]
    fn a_line_without_end_is_broken() {
        let (mut lines, mut out) = (Lines { longest: 4, ..lines(Style::Plain) }, Vec::new());
        b"abcdefghij".chunks(2).for_each(|chunk| lines.feed(chunk, &mut out));
        lines.finish(&mut out);
        assert_eq!(out, b"abcd\nefgh\nij\n");
    }

    #[test]
    fn json_holds_text_or_hexadecimal_bytes() {
        let (mut lines, mut out) = (lines(Style::Json), Vec::new());
        lines.feed(b"a \"b\"\n\xff\x00\n", &mut out);
        let objects: Vec<serde_json::Value> =
            out.split_inclusive(|&b| b == b'\n').map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!(objects[0], serde_json::json!({"rank": 3, "stream": "stderr", "text": "a \"b\""}));
        assert_eq!(objects[1], serde_json::json!({"rank": 3, "stream": "stderr", "hex": "ff00"}));
    }
}
