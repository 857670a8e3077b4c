//! Polymarket's books the way they are read where nobody minds the cost: everything into generic values, and out again. The
//! benches hold the scanner against it; nothing else reads books this way.

use catchment_model::{BookFlags, Decimal, UnixMs};
use serde_json::{Value, json};

use crate::book_page::{BookFacts, Matcher};
use crate::{BookPage, ReadError};

/// Reads the answer of `POST /books` or of `GET /book`. Hashes are not looked at, nor is anything that is odd.
pub(super) fn read(keys: &[&str], body: &[u8], page: &mut BookPage) -> Result<(), ReadError> {
    page.clear();
    let value = serde_json::from_slice(body).map_err(|error| ReadError::not_json(body, error))?;
    let books = match value {
        Value::Array(books) => books,
        book => vec![book],
    };
    let mut matcher = Matcher::new(keys);
    for mut book in books {
        let Some(asked) = book["asset_id"].as_str().and_then(|key| matcher.find(key)) else {
            page.refuse(None, "was not asked for".to_owned(), &book.to_string());
            continue;
        };
        let time = book["timestamp"].as_str().and_then(|text| text.parse().ok());
        let mut take = |key: &str| book[key].take();
        let record = json!({
            "market": take("market"),
            "instrument": take("asset_id"),
            "timestamp_ms": time,
            "bids": side(take("bids"), true),
            "asks": side(take("asks"), false),
            "min_order_size": take("min_order_size"),
            "tick_size": take("tick_size"),
            "neg_risk": take("neg_risk"),
            "last_trade_price": take("last_trade_price"),
            "hash": take("hash"),
            "hash_ok": null,
            "flags": [],
        });
        let start = page.bytes.len();
        serde_json::to_writer(&mut page.bytes, &record).expect("a value always serialises");
        let server_time = time.and_then(|time| UnixMs::new(time).ok());
        page.add(asked, start, BookFacts { server_time, flags: BookFlags::default(), hash_ok: None });
    }
    page.close(keys.len());
    Ok(())
}

/// The levels of a side, best first.
fn side(levels: Value, highest_first: bool) -> Value {
    let Value::Array(levels) = levels else { return Value::Null };
    let mut levels: Vec<(Option<Decimal>, Value)> = levels
        .into_iter()
        .map(|mut level| {
            let price = level["price"].as_str().and_then(|price| price.parse().ok());
            (price, json!([level["price"].take(), level["size"].take()]))
        })
        .collect();
    levels.sort_by(|a, b| if highest_first { b.0.cmp(&a.0) } else { a.0.cmp(&b.0) });
    levels.into_iter().map(|(_, level)| level).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{books, sample_books};
    use super::*;
    use crate::BookForm;

    #[test]
    fn records_say_the_same_as_the_scanners() {
        let (tokens, body) = sample_books(20, 30, 1);
        let keys: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let [mut plain, mut scanned] =
            [(); 2].map(|()| BookPage::new(BookForm::Normalised).trusting_hashes());
        read(&keys, &body, &mut plain).unwrap();
        books::read(&keys, &body, &mut scanned).unwrap();
        assert_eq!(plain.books().len(), 20);
        for (plain, scanned) in plain.books().zip(scanned.books()) {
            assert_eq!((plain.asked, plain.server_time), (scanned.asked, scanned.server_time));
            let value = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
            assert_eq!(value(plain.payload.as_bytes()), value(scanned.payload.as_bytes()));
        }
    }
}
