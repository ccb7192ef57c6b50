-- What is found by meaning and by words. Derived from the log: it may be dropped and built anew.

-- How far the index of each log has followed it, with vectors of which model.
CREATE TABLE followed (
    session INTEGER PRIMARY KEY,
    model   TEXT NOT NULL,
    upto    INTEGER NOT NULL
) STRICT;

-- Under the place of their message, so that those of one session are neighbours here too.
CREATE TABLE vectors (
    place  INTEGER PRIMARY KEY,
    vector BLOB NOT NULL                    -- one signed byte a dimension
) STRICT;

-- Apart from the vectors: to look at all of a session, few pages are read.
CREATE TABLE sketches (
    place INTEGER PRIMARY KEY,
    bits  BLOB NOT NULL                     -- the sign of each dimension
) STRICT;

-- By session first: how rare a word is, is a matter of the session, and erasing is one range.
CREATE TABLE words (
    session INTEGER NOT NULL,
    term    INTEGER NOT NULL,               -- hash of a word
    seq     INTEGER NOT NULL,
    weight  REAL NOT NULL,
    PRIMARY KEY (session, term, seq)
) STRICT, WITHOUT ROWID;
