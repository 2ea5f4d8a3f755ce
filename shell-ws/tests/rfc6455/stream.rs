//! What a case is, and the bytes of both directions.

/// One exchange: what a client sends, and what it must be told.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) sent: Vec<u8>,
    pub(crate) said: Vec<Said>,
}

/// A frame of the server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Binary(Vec<u8>),
    Close(Option<u16>),
    Pong(Vec<u8>),
    Text(Vec<u8>),
}

impl std::fmt::Debug for Said {
    /// Short, however long the payload is.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, payload) = match self {
            Self::Binary(payload) => ("binary", payload),
            Self::Close(code) => return write!(f, "close {code:?}"),
            Self::Pong(payload) => ("pong", payload),
            Self::Text(payload) => ("text", payload),
        };
        let start = &payload[..payload.len().min(16)];
        write!(f, "{kind} of {} bytes from {start:02x?}", payload.len())
    }
}

impl Case {
    /// A case in which the client says good-bye after `frames`; that is answered unless the server
    /// has ended it before.
    pub(crate) fn new(name: impl Into<String>, frames: &[Vec<u8>], said: &[Said]) -> Self {
        let mut said = said.to_vec();
        if !matches!(said.last(), Some(Said::Close(_))) {
            said.push(Said::Close(Some(1000)));
        }
        let sent = [frames.concat(), frame(0x88, &close(1000, b""))].concat();
        Self { name: name.into(), sent, said }
    }

    /// Pongs and closes alone: what a server must say that does not echo.
    pub(crate) fn control(&self) -> Vec<Said> {
        self.said.iter().filter(|said| said.is_control()).cloned().collect()
    }
}

impl Said {
    pub(crate) const fn is_control(&self) -> bool {
        matches!(self, Self::Close(_) | Self::Pong(_))
    }
}

/// A client's frame: `first` is its first byte.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let len = payload.len();
    let mut frame = vec![first];
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(short @ 0..=125), _) => frame.push(0x80 | short),
        (_, Ok(medium)) => {
            frame.push(0x80 | 126);
            frame.extend(medium.to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// The payload of a close frame.
pub(crate) fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes(), reason].concat()
}

/// Reads the server's frames, which must be whole, final, unmasked and of the shortest form.
pub(crate) fn read(mut bytes: &[u8]) -> Result<Vec<Said>, String> {
    let mut said = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        let digits = match second {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some((head, rest)) = rest.split_at_checked(digits) else {
            return Err("the stream ends in a head".to_owned());
        };
        let long = head.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        let len = if digits == 0 { usize::from(*second) } else { long };
        let least = [0, 126, 1 << 16][digits.div_ceil(4)];
        if second & 0x80 != 0 || len < least {
            return Err(format!("a head of {first:#x} {second:#x} {head:02x?}"));
        }
        let Some((payload, rest)) = rest.split_at_checked(len) else {
            return Err(format!("a frame of {len} bytes ends after {}", rest.len()));
        };
        said.push(match (first, payload) {
            (0x81, text) if std::str::from_utf8(text).is_ok() => Said::Text(text.into()),
            (0x82, bytes) => Said::Binary(bytes.into()),
            (0x8a, bytes) if len <= 125 => Said::Pong(bytes.into()),
            (0x88, []) => Said::Close(None),
            (0x88, [high, low, reason @ ..])
                if len <= 125 && std::str::from_utf8(reason).is_ok() =>
            {
                Said::Close(Some(u16::from_be_bytes([*high, *low])))
            }
            _ => return Err(format!("a frame of {len} bytes that begins with {first:#x}")),
        });
        bytes = rest;
    }
    if bytes.is_empty() { Ok(said) } else { Err("the stream ends in a head".to_owned()) }
}
