//! HMAC-SHA256, as a client of a private socket signs. Whoever signs has a function of its own; that the two agree is
//! worth more than sharing one.

use sha2::{Digest, Sha256};

const BLOCK: usize = 64;

/// The signature.
pub(crate) fn hmac(secret: &[u8], message: &[u8]) -> [u8; 32] {
    let mut key = [0u8; BLOCK];
    match secret.len() > BLOCK {
        true => key[..32].copy_from_slice(&Sha256::digest(secret)),
        false => key[..secret.len()].copy_from_slice(secret),
    }
    let inner = Sha256::new().chain_update(key.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(key.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

/// The signature in lower-case hexadecimal.
pub(crate) fn hmac_hex(secret: &[u8], message: &[u8]) -> String {
    hmac(secret, message).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The signature in base64.
pub(crate) fn hmac_base64(secret: &[u8], message: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(44);
    for three in hmac(secret, message).chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_own_examples_come_out() {
        // RFC 4231, cases 2 and 6.
        assert_eq!(
            hmac_hex(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hmac_base64(b"Jefe", b"what do ya want for nothing?"),
            "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM="
        );
        assert_eq!(
            hmac_hex(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
