// An option such as --secure is searched for by its name; the search would take a dash for "without".
const post = Worker.prototype.postMessage
Worker.prototype.postMessage = function (message, ...more) {
  const asked = typeof message?.data === "string"
  const data = asked && message.data.replace(/(^|\s)-+(?=\w)/g, "$1")
  return post.call(this, asked ? { ...message, data } : message, ...more)
}
