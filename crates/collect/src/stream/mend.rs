//! Which stream a frame was of that was cut off: its beginning, closed so that it can be read.
//!
//! What comes out is never stored; it only says whose message is missing.

/// The beginning of a JSON text with whatever is open closed: strings, arrays, objects. Nothing if it is not even a
/// beginning.
pub(crate) fn mended(frame: &[u8]) -> Option<Vec<u8>> {
    /// Deeper than any venue goes.
    const DEPTH_MAX: usize = 64;
    // Cut within a character: that one goes.
    let text = match std::str::from_utf8(frame) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&frame[..error.valid_up_to()]).ok()?,
    };
    let bytes = text.trim_end().as_bytes();
    let mut open: Vec<u8> = Vec::new();
    // The last place after a whole member, and how much was open there.
    let mut whole = (0, 0);
    let mut at = 0;
    let mut in_string = false;
    while at < bytes.len() {
        let byte = bytes[at];
        match (in_string, byte) {
            (true, b'\\') => at += 1,
            (true, b'"') => in_string = false,
            (true, _) => {}
            (false, b'"') => in_string = true,
            (false, b'{' | b'[') => {
                open.push(if byte == b'{' { b'}' } else { b']' });
                whole = (at + 1, open.len());
            }
            (false, b'}' | b']') => {
                if open.pop() != Some(byte) {
                    return None;
                }
                whole = (at + 1, open.len());
            }
            (false, b',') => whole = (at, open.len()),
            _ => {}
        }
        if open.len() > DEPTH_MAX {
            return None;
        }
        at += 1;
    }
    let (end, depth) = whole;
    if end == 0 {
        return None;
    }
    // What was closed since the last whole member is open again there.
    let mut mended = bytes[..end].to_vec();
    mended.extend(open[..depth.min(open.len())].iter().rev());
    Some(mended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(frame: &str, expected: Option<&str>) {
        let mended = mended(frame.as_bytes());
        assert_eq!(mended.as_deref().map(String::from_utf8_lossy).as_deref(), expected, "{frame}");
        if let Some(mended) = mended {
            serde_json::from_slice::<serde_json::Value>(&mended).unwrap();
        }
    }

    #[test]
    fn what_is_open_is_closed_after_the_last_whole_member() {
        check(
            r#"{"stream":"btc@trade","data":{"e":"trade","s":"BTC"#,
            Some(r#"{"stream":"btc@trade","data":{"e":"trade"}}"#),
        );
        check(r#"{"a":1,"b":[1,2,{"c":tr"#, Some(r#"{"a":1,"b":[1,2,{}]}"#));
        check(r#"{"a":"x\"}","b"#, Some(r#"{"a":"x\"}"}"#));
        check(r#"[{"a":1},{"b":2"#, Some(r#"[{"a":1},{}]"#));
        check(r#"{"a":{"b":1}"#, Some(r#"{"a":{"b":1}}"#));
        check("", None);
        check("pon", None);
        check("}", None);
    }

    #[test]
    fn every_beginning_of_a_frame_can_be_read() {
        let frame = r#"{"arg":{"channel":"books","instId":"BTC-USDT"},"data":[{"asks":[["1","2"],["3","é"]],"ts":"7"}]}"#;
        for end in 1..frame.len() {
            let mended = mended(&frame.as_bytes()[..end]).unwrap();
            serde_json::from_slice::<serde_json::Value>(&mended)
                .unwrap_or_else(|error| panic!("{end}: {error}: {}", String::from_utf8_lossy(&mended)));
        }
    }
}
