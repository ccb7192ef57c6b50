// Trades the token for a cookie that no script can read.
const said = document.getElementById("said");

document.getElementById("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = document.getElementById("token").value;
  try {
    const answer = await fetch("/api/sign-in", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token }),
    });
    if (answer.ok) location.reload();
    else said.textContent = (await answer.json()).message;
  } catch {
    said.textContent = "The service does not answer.";
  }
});
